"""Weights in and out: any known layout into our one model, with a proof; and back again."""

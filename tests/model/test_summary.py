"""The table of layers."""

from vitral.build import create
from vitral.model.summary import rows


def test_summary_shows_sizes_and_the_reports_total():
    model = create("report-cifar")
    text = model.summary()
    assert "3,195,146 parameters, 12.781 MB in fp32" in text
    table = {name: (count, size_in, size_out) for name, _, count, size_in, size_out in rows(model, (3, 32, 32))}
    assert table["patches"] == (48 * 256 + 256, "3×32×32", "64×256")
    assert table["blocks.5.attention.qkv"] == (256 * 768 + 768, "65×256", "65×768")
    assert table["head.linear"] == (2570, "256", "10")
    assert "23.409 MB" in create("cnn").summary()

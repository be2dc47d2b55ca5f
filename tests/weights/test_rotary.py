"""Which angles a file has, by its other parts: tests/parity proves each against timm."""

import pytest

from vitral.weights.infer import rotary_of

TABLE, SCALE, CLASS, REGISTERS = "positions.table", "blocks.0.scale1", "tokens.class_token", "tokens.registers"


@pytest.mark.parametrize(
    ("names", "swiglu", "family", "kind"),
    [
        ([SCALE, CLASS, REGISTERS], False, "timm-dinov3", "dinov3"),
        ([SCALE, CLASS], False, "timm-scaled", "axial"),
        ([SCALE, REGISTERS], False, "timm-eva", "eva"),
        ([TABLE, CLASS], True, "timm-eva", "eva"),
        ([TABLE, CLASS], False, "timm-eva", None),
        ([TABLE, CLASS, "pool.probe"], False, "timm-perception", "perception"),
        ([TABLE, CLASS, "norm.weight"], False, "timm-clip", None),
        ([TABLE, CLASS], False, "timm-clip", "perception"),
        ([TABLE, SCALE, CLASS], False, "timm-scaled", None),
        ([SCALE, CLASS, "blocks.0.attention.relative.table"], False, "timm-beit", None),
        ([CLASS], False, "timm", None),
        ([SCALE, CLASS, REGISTERS], False, "vitral", None),
        ([TABLE, "rotary.speeds"], False, "timm-scaled", "mixed"),
    ],
)
def test_the_parts_give_the_kind_away(names, swiglu, family, kind) -> None:
    found = rotary_of(dict.fromkeys(names, (1,)), swiglu, family)
    assert found.get("rotary") == kind
    if kind:
        assert found["positions"] == ("learned+rotary" if TABLE in names else "rotary")

"""vitral weights inspect|convert|list."""

from __future__ import annotations

import json

from vitral.build import create
from vitral.cli import main
from vitral.weights.export import export


def test_the_command_line_inspects_converts_and_lists(tmp_path, capsys) -> None:
    path = export(create("tiny"), tmp_path / "timm", "timm")
    (tmp_path / "timm" / "config.json").unlink()
    assert main(["weights", "inspect", str(path), "--heads", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"mapped": 32}
    assert main(["weights", "convert", str(path), str(tmp_path / "hf"), "--format", "hf", "--heads", "3", "--classes", "4", "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["path"] == str(tmp_path / "hf") and any("head replaced" in change for change in result["changes"])
    assert any("mean" in line for line in result["assumed"]) and "assumed" in captured.err
    assert main(["weights", "convert", str(tmp_path / "hf"), str(tmp_path / "own")]) == 0
    assert (tmp_path / "own" / "model.safetensors").is_file()
    capsys.readouterr()
    assert main(["weights", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"timm", "torchvision", "hf", "npz", "onnx"} <= set(listed["write"])
    assert {"vit_b_16", "vit_h_14", "resnet152"} <= set(listed["pretrained"]["torchvision"])
    assert "vit_tiny_patch16_224.augreg_in21k_ft_in1k" in listed["pretrained"]["timm"]


def test_the_command_line_fails_in_one_line(tmp_path, capsys) -> None:
    for arguments, code in (
        (["weights", "inspect", str(tmp_path / "nowhere.pth")], 1),
        (["weights", "convert", "timm:vit_tiny_patch16_22", str(tmp_path)], 2),
        (["weights", "swap"], 2),
        (["weights", "inspect"], 2),
    ):
        assert main(arguments) == code
        assert capsys.readouterr().err.strip().splitlines()[-1].startswith("vitral: ")

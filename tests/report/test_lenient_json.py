from __future__ import annotations

from pathlib import Path

from vitral.report.lenient_json import read_object


def test_missing_and_damaged_files_say_so(tmp_path: Path) -> None:
    notes: list[str] = []
    assert read_object(tmp_path / "env.json", notes, "versions are not known") == {}
    assert read_object(tmp_path / "test.json", notes) == {}
    assert notes == ["env.json is missing: versions are not known"]
    (tmp_path / "list.json").write_text("[1]")
    assert read_object(tmp_path / "list.json", notes) == {}
    assert "list.json holds no JSON object" in notes[-1]
    (tmp_path / "list.json").write_text("{")
    assert read_object(tmp_path / "list.json", notes) == {}
    assert "list.json is not JSON" in notes[-1] and len(notes) == 3

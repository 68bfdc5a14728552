"""Benchmarks: what the driver keeps and shows, and the command that a run names."""

from eval import runs


def test_a_command_can_be_typed_on_another_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXWHITEN_DATA_DIR", str(tmp_path))
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    words = (
        f"/usr/bin/python -m benchmarks.encode --rounds 2 --cache /home/me --model=/home/it /x/y.npy --file={tmp_path}"
    )
    monkeypatch.setattr(runs.sys, "orig_argv", [*f"{words}/pairs.tsv".split(), "a b"])
    arguments = "--rounds 2 y.npy --file=$JAXWHITEN_DATA_DIR/pairs.tsv 'a b'"
    assert runs.command("benchmarks.encode", {}) == f"python -m benchmarks.encode {arguments}"
    assert list(runs.checksums(runs.sys.orig_argv)) == ["pairs.tsv"]
    assert runs.command("eval.sts", {"ks": "0,8", "out": ""}) == "python -m eval.sts --config.ks=0,8"

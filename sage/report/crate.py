"""An RO-Crate description of a run folder, which lets other software read its contents."""

from __future__ import annotations

from pathlib import Path

from sage.core.files import write_text
from sage.run.folder import Manifest

DESCRIBED = {
    "report.html": ("Report", "text/html"),
    "report.md": ("Report (Markdown)", "text/markdown"),
    "results.json": ("Every number of the report by key", "application/json"),
    "manifest.json": ("What was asked, and with what", "application/json"),
    "events.jsonl": ("Event log", "application/jsonl"),
    "trace.jsonl": ("Every agent's turns", "application/jsonl"),
    "ledger.jsonl": ("Every attempted test", "application/jsonl"),
    "integrity.jsonl": ("Hashes of the files as the run left them", "application/jsonl"),
}
TYPES = {
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".py": "text/x-python",
    ".jsonl": "application/jsonl",
    ".png": "image/png",
}


def write_crate(root: Path, manifest: Manifest) -> Path:
    """Write `ro-crate-metadata.json` (RO-Crate 1.1), which describes the files in a run.

    Prepared inputs and checkpoints are left out, because they contain patient rows or are
    useful only to SAGE.
    """
    import json

    from rocrate.model.softwareapplication import SoftwareApplication
    from rocrate.rocrate import ROCrate

    crate = ROCrate(gen_preview=False)
    crate.name = f"SAGE run {manifest.id}"
    crate.description = manifest.spec.prompt + (
        " (simulated cohort: no evidence about patients)" if manifest.simulated else ""
    )
    crate.root_dataset["dateCreated"] = manifest.created
    crate.root_dataset["datePublished"] = manifest.created
    software = crate.add(
        SoftwareApplication(
            crate,
            "#sage",
            properties={"name": "SAGE", "version": manifest.versions.get("sage", "")},
        )
    )
    for path in files_of(root):
        name = path.relative_to(root).as_posix()
        title, kind = DESCRIBED.get(name) or (name, TYPES[path.suffix])
        crate.add_file(path, dest_path=name, properties={"name": title, "encodingFormat": kind})
    crate.add_action(
        software,
        identifier="#run",
        result=crate.get("report.html"),
        properties={"name": "SAGE run", "startTime": manifest.created},
    )
    target = root / "ro-crate-metadata.json"
    document = crate.metadata.generate()
    # The library stamps the time of writing, but a rebuilt crate must not change.
    write_text(target, json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    return target


def files_of(root: Path) -> list[Path]:
    """List the files to be described, in a stable order."""
    top = [root / name for name in DESCRIBED if (root / name).is_file()]
    below = [
        path
        for folder in ("outputs", "hypotheses")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
        and path.suffix in TYPES
        and "inputs" not in path.relative_to(root).parts
        and not path.is_symlink()
    ]
    return [*top, *below]

"""Downloads from the Hub, with a check of every file."""

from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download


def download(
    repo_id: str, revision: str | None = None, *, token: str | bool | None = None, cache_dir: str | Path | None = None
) -> str:
    """Download a repository into the cache, and compare every file with its hash on the Hub.

    ``from_pretrained("user/name")`` checks only the sizes of files. ``from_pretrained(download("user/name"))`` checks
    their contents as well, before any code in them runs. In offline mode nothing is downloaded or checked: the function
    returns an earlier download.

    Args:
        repo_id: ``"user/name"``.
        revision: a branch, tag or commit; by default ``main``.
        token, cache_dir: as for `huggingface_hub.snapshot_download`.

    Returns:
        The folder, for ``from_pretrained``.

    Raises:
        ValueError: if the content of a file differs from the Hub's. The message names these files, and they are removed
            from the cache.
    """
    folder = Path(snapshot_download(repo_id, revision=revision, token=token, cache_dir=cache_dir))
    if constants.is_offline_mode():
        return str(folder)
    checked = HfApi(token=token).verify_repo_checksums(repo_id, revision=folder.name, cache_dir=cache_dir)
    for mismatch in checked.mismatches:
        link = folder / mismatch["path"]
        link.resolve().unlink(missing_ok=True)  # files with the same content share it
        link.unlink(missing_ok=True)
    if checked.mismatches:
        names = ", ".join(mismatch["path"] for mismatch in checked.mismatches)
        raise ValueError(f"{names} of {repo_id} differ from the Hub's files and were removed; download it again")
    return str(folder)

"""Repositories of the Hub, with every file checked."""

from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download


def download(
    repo_id: str, revision: str | None = None, *, token: str | bool | None = None, cache_dir: str | Path | None = None
) -> str:
    """Fetch a repository into the cache, compare every file with the hash that the Hub has for it.

    ``from_pretrained("user/name")`` checks sizes alone; ``from_pretrained(download("user/name"))`` checks contents, and
    before any of the code in it is run. In offline mode it finds what was fetched before.

    Args:
        repo_id: ``"user/name"``.
        revision: branch, tag or commit; by default ``main``.
        token, cache_dir: as for `huggingface_hub.snapshot_download`.

    Returns:
        The folder, for ``from_pretrained``.

    Raises:
        ValueError: naming the files whose content is not the Hub's; they are removed from the cache.
    """
    folder = Path(snapshot_download(repo_id, revision=revision, token=token, cache_dir=cache_dir))
    if constants.is_offline_mode():
        return str(folder)
    checked = HfApi(token=token).verify_repo_checksums(repo_id, revision=folder.name, cache_dir=cache_dir)
    for mismatch in checked.mismatches:
        link = folder / mismatch["path"]
        link.resolve().unlink(missing_ok=True)  # files of the same content share it
        link.unlink(missing_ok=True)
    if checked.mismatches:
        names = ", ".join(mismatch["path"] for mismatch in checked.mismatches)
        raise ValueError(f"{names} of {repo_id} came with another content than the Hub has; removed, download it again")
    return str(folder)

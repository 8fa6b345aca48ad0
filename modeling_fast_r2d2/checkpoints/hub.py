"""Downloads from the Hub, with a check of every file."""

from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import HfApi, constants, snapshot_download

from ..text_files import read_record
from .folders import INDEX_SUFFIX, check_index, check_names


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
            from the cache. Also if the repository has a file name that leads out of its folder, or an index of weights
            that has one; then nothing is written.
    """
    api = HfApi(token=token)
    if constants.is_offline_mode():
        return snapshot_download(repo_id, revision=revision, token=token, cache_dir=cache_dir)
    _check_names(api, repo_id, revision)
    folder = Path(snapshot_download(repo_id, revision=revision, token=token, cache_dir=cache_dir))
    checked = api.verify_repo_checksums(repo_id, revision=folder.name, cache_dir=cache_dir)
    check_names([mismatch["path"] for mismatch in checked.mismatches], repo_id)  # before files are deleted
    for mismatch in checked.mismatches:
        link = folder / mismatch["path"]
        link.resolve().unlink(missing_ok=True)  # files with the same content share it
        link.unlink(missing_ok=True)
    if checked.mismatches:
        names = ", ".join(mismatch["path"] for mismatch in checked.mismatches)
        raise ValueError(f"{names} of {repo_id} differ from the Hub's files and were removed; download it again")
    return str(folder)


def _check_names(api: HfApi, repo_id: str, revision: str | None) -> None:
    """Raise ValueError for file names that lead out of a folder."""
    info = api.model_info(repo_id, revision=revision)
    names = [file.rfilename for file in info.siblings or []]
    check_names(names, repo_id)
    with TemporaryDirectory() as folder:  # not the cache
        for name in names:
            if name.endswith(INDEX_SUFFIX):
                path = api.hf_hub_download(repo_id, name, revision=info.sha, local_dir=folder)
                check_index(read_record(Path(path)), f"{name} of {repo_id}")

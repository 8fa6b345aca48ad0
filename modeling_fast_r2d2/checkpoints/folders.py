"""Where a checkpoint is, downloads, checks of its folder, made before anything is loaded from it, and loading."""

import pickle
import re
import struct
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import HfApi, constants, snapshot_download
from safetensors import SafetensorError
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tokenization_fast_r2d2.words import tokenizer_errors

from ..text_files import check_is_file, read_record

FOLDER = Path(__file__).parent  # of the checkpoints that come with the package
DEFAULT_CHECKPOINT = str(FOLDER / "fast-r2d2-tiny")  # not looked for at import
INDEX_SUFFIX = ".index.json"  # of files that say which file has which weight
# The weights that a folder without the head of a task, or of an older model, lacks.
HEADS = r"(lm_head|classifier|decoder_stack|(model\.)?pooler)\."
OUR_TYPE = "fast_r2d2"
# What ``torch.load`` raises for a file that is no pickle, such as a text, or that holds more than tensors.
NO_TENSORS = (pickle.UnpicklingError, EOFError, LookupError, UnicodeDecodeError, struct.error)


def bundled_names() -> list[str]:
    """The names of these checkpoints, sorted."""
    return sorted(path.parent.name for path in FOLDER.glob("*/config.json"))


def bundled_checkpoint(name: str = "fast-r2d2-tiny") -> str:
    """The folder of a checkpoint that comes with the package, for ``from_pretrained``.

    Raises:
        ValueError: if there is none of that name; the message lists those there are.
    """
    if name not in bundled_names():
        raise ValueError(f"bundled checkpoints are {', '.join(bundled_names())}, got {name!r}")
    return str(FOLDER / name)


def find_checkpoint(name: str, *, is_model: bool = True) -> str:
    """Where a checkpoint is: the folder of the bundled one of that name, an existing folder, or a Hub name, user/name.

    Args:
        is_model: whether a folder must have a model; else a tokenizer is enough.

    Raises:
        ValueError: for a path without a folder, and for a folder whose files are damaged, another model's, or no files
            but pipes or devices.
    """
    name = str(name)
    if name and Path(name).is_dir():
        for path in Path(name).iterdir():
            check_is_file(path)
        check_tokenizer_folder(Path(name))
        if is_model:
            check_model_folder(Path(name))
        return name
    if name in bundled_names():
        return bundled_checkpoint(name)
    hub_name = r"[\w.-]+/[\w.-]+" if is_model else r"[\w.-]+(/[\w.-]+)?"  # some old tokenizers have no user's name
    if Path(name).exists() or not re.fullmatch(hub_name, name) or name.startswith("."):
        raise ValueError(f"no checkpoint at {name!r}; give a folder, a Hub name or one of {', '.join(bundled_names())}")
    return name


def check_model_folder(folder: Path) -> None:
    """Check the files that say what the weights are. The weights themselves are checked when they are loaded.

    Raises:
        ValueError: if the configuration is missing, damaged or another model's, or if an index names files outside the
            folder. The message names the file.
    """
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} has no config.json; give a checkpoint's folder")
    kind = read_record(folder / "config.json").get("model_type")
    if kind != OUR_TYPE:
        raise ValueError(f"{folder / 'config.json'} is of a {kind!r} model, not of a {OUR_TYPE!r} model")
    for index in folder.glob(f"*{INDEX_SUFFIX}"):
        check_index(read_record(index), str(index))


def check_tokenizer_folder(folder: Path) -> None:
    """Check a tokenizer, if the folder has one.

    Raises:
        ValueError: if a file is damaged, or if the vocabulary is empty or lacks the unknown word.
    """
    if (folder / "tokenizer_config.json").exists():
        read_record(folder / "tokenizer_config.json")
    path = folder / "tokenizer.json"
    if not path.exists():
        return
    try:
        with tokenizer_errors():
            model = Tokenizer.from_buffer(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); restore it, or give another folder") from error
    vocabulary = model.get_vocab(with_added_tokens=False)
    unknown = getattr(model.model, "unk_token", None)
    if not vocabulary or (unknown is not None and unknown not in vocabulary):
        raise ValueError(f"the vocabulary in {path} has {len(vocabulary)} pieces, and {unknown!r} is none of them")


def check_index(index: Mapping[str, Any], name: str) -> None:
    """Raise ValueError unless an index of weights names files of its own folder."""
    files = index.get("weight_map")
    if not (isinstance(files, dict) and all(isinstance(file, str) for file in files.values())):
        raise ValueError(f"{name} is damaged (no weight_map of file names)")
    check_names(files.values(), name)


def check_names(names: Any, place: str) -> None:
    """Raise ValueError if a file name leads out of its folder, on this system or on another."""
    for name in names:
        parts = PureWindowsPath(name).parts  # it knows both kinds of slashes
        if not name or ".." in parts or PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor:
            raise ValueError(f"{place} has the file name {name!r}, which leads out of its folder; do not use it")


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


def load_model(model_class: Any, checkpoint: str, *, may_miss: str | None = None, **options: Any) -> Any:
    """``from_pretrained`` of a checkpoint from `find_checkpoint`, with errors that say what is wrong with it.

    Args:
        may_miss: what the names of weights match that the checkpoint may lack, such as `HEADS`; they are drawn then.

    Raises:
        ValueError: if the weights are damaged, are no tensors, do not fit the configuration, or are missing; if the
            configuration asks for what is not installed.
        OSError: if the Hub has no such checkpoint or cannot be reached, or a file cannot be read.
    """
    try:
        model, info = model_class.from_pretrained(checkpoint, output_loading_info=True, **options)
    except OSError as error:
        raise _not_loaded(checkpoint, error) from error
    except SafetensorError as error:
        raise ValueError(f"the weights in {checkpoint} are damaged ({error})") from error
    except NO_TENSORS as error:  # the library's message advises to run what is in the file
        raise ValueError(f"the weights in {checkpoint} are damaged, or a file holds more than tensors") from error
    except RuntimeError as error:
        raise ValueError(f"the weights in {checkpoint} do not fit its config.json ({_first_line(error)})") from error
    except (ImportError, TypeError, AttributeError) as error:  # transformers hardly checks what it reads there
        raise ValueError(f"the config.json in {checkpoint} cannot be used ({_first_line(error)})") from error
    names = sorted(name for name in info["missing_keys"] if may_miss is None or not re.match(may_miss, name))
    if names:
        raise ValueError(f"{checkpoint} lacks {len(names)} weights of a {model_class.__name__}, such as {names[0]}")
    return model


def load_tokenizer(checkpoint: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint from `find_checkpoint`.

    Raises:
        ValueError: if it has settings that make no sense, or files of none.
        OSError: as for `load_model`.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        tokenizer("a", add_special_tokens=False)  # some settings are read only here
    except OSError as error:
        raise _not_loaded(checkpoint, error) from error
    except ValueError as error:
        raise ValueError(f"no tokenizer in {checkpoint} ({_first_line(error)})") from error
    except (ImportError, TypeError, AttributeError, LookupError) as error:  # transformers hardly checks what it reads
        raise ValueError(f"the tokenizer_config.json in {checkpoint} is damaged ({_first_line(error)})") from error
    return tokenizer


def _not_loaded(checkpoint: str, error: OSError) -> OSError:
    """The library's error with the name that was given and those that need no network."""
    names = ", ".join(bundled_names())
    return OSError(f"{checkpoint} could not be loaded ({_first_line(error)}); {names} come with the package")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

"""Parse ten sentences, or your own: `fast-r2d2 parse`, as a script.

    python examples/parse.py                                    # ten sentences
    python examples/parse.py "The cat sat on the mat"
    accelerate launch examples/parse.py --file corpus/*.txt.gz --output trees/

The bundled checkpoint works offline; `--help` lists the options.
"""

import sys
from pathlib import Path

from fast_r2d2_entry_points.command_line import main

if __name__ == "__main__":
    sentences = Path(__file__).with_name("sentences.txt")
    main(["parse", *(sys.argv[1:] or ["--file", str(sentences), "--format", "pretty"])])

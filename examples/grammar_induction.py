"""Compare systems on a treebank: `fast-r2d2 evaluate`, as a script.

    python examples/grammar_induction.py gold.mrg                                   # baselines and the bundled model
    python examples/grammar_induction.py gold.mrg --predicted mine.txt theirs.txt   # trees of other parsers
    python examples/grammar_induction.py gold.mrg --granularity pieces --no_keep_words

`--help` lists the options.
"""

import sys

from fast_r2d2_entry_points.command_line import main

if __name__ == "__main__":
    main(["evaluate", *sys.argv[1:]])

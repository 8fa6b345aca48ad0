"""SIGTERM and Ctrl-C: asked once, a run saves and ends well; asked twice, it ends at once."""

import signal


class StopSignal:
    """``asked`` becomes true at the first signal."""

    def __init__(self):
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def _receive(self, number, frame) -> None:
        self.asked = True
        signal.signal(number, signal.SIG_DFL)

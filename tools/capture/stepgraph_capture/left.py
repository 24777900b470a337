"""What a run of the step leaves otherwise for the next one, and no graph holds: modes of modules (`model.eval()` at its
end), and which parameters require gradients. A second run begins with it, and must do the same.
"""

from __future__ import annotations

from typing import List

from .step import Step


class Left:
    def __init__(self, step: Step) -> None:
        """Before the first run."""
        self._step = step
        self._modes = [(name, module, module.training) for name, module in step.model.named_modules()]

    def begin(self) -> List[str]:
        """After the first run: lets the next one begin with what it left; returns the names of that."""
        self._step.requires_grad = self._step.left_requires_grad
        changed = [name for name, module, mode in self._modes if module.training != mode]
        outermost = [name for name in changed if name.rpartition(".")[0] not in changed or name == ""]
        modes = [f"{name or 'model'}.training" for name in outermost]
        return modes + [f"{name}.requires_grad" for name in self._step.requires_grad]

    def end(self) -> None:
        """Before the trace, which is that of the first run."""
        self._step.requires_grad = {}
        for _, module, mode in self._modes:
            module.training = mode

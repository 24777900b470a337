"""The step as a function of flat tensors: state and inputs in a fixed order, loss and gradients out."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from . import beside, by_parameter, compat, fsdp, inplace, kept, opened, own_step, scalers, sharding, world, wrappers
from .errors import CaptureError
from .generators import Generators
from .held import Held
from .made import Made
from .optimizers import Optimizers
from .places import Place, swapped
from .recorder import Recorder
from .replicas import Replicas

Loss = Optional[Callable[..., Any]]
Others = Dict[str, Tensor]
_Found = Tuple[Optional[Tensor], List[Optional[Tensor]], Others]  # the loss, gradients, and more


@dataclass
class Slot:
    """One input of the graph."""

    name: str  # its name in the model, as the capture has it
    kind: str  # parameter, buffer or input
    value: Any  # the user's object: a tensor, perhaps sharded, or a Python value
    trainable: bool = False
    tied: List[str] = field(default_factory=list)  # other names of the same parameter

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.value, Tensor)

    @property
    def requires_grad(self) -> bool:
        """Whether it does while the step runs: also an input that does, for penalties and adversarial training."""
        return self.trainable or (self.kind == "input" and bool(self.value.requires_grad))

    @property
    def local(self) -> Tensor:
        """This rank's part of the value."""
        return sharding.local(self.value)


@dataclass
class Result:
    """What a step returns: the loss, a gradient or None for each trainable slot, and further tensors that the user's
    loss function returned."""

    loss: Optional[Tensor]  # None if a train_step on this rank has no loss
    gradients: List[Optional[Tensor]]
    others: Others
    rebound: Dict[str, Tensor]  # state that the step bound to other tensors, by name

    @property
    def outputs(self) -> List[Optional[Tensor]]:
        loss = [] if self.loss is None else [self.loss]
        return [*loss, *self.gradients, *self.others.values(), *self.rebound.values()]


class Step:
    """A model, its loss function and one batch; or, in place of the function, a step that calls backward itself."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Loss,
        inputs: Any,
        kwargs: Optional[Mapping[str, Any]],
        targets: Any,
        train_step: Optional[Callable[..., Any]] = None,
        optimizer: Any = None,
    ) -> None:
        wrappers.check(model, is_own=train_step is not None)
        self.replicas = Replicas(model)
        self.model = self.replicas.model  # without an outer DistributedDataParallel; its names are the capture's
        self.units = compat.fsdp_units(self.model)
        self.loss_fn = loss_fn
        self.train_step = train_step
        args, keywords = _arguments(inputs, kwargs)
        self._batch = opened.opened((args, keywords, targets))
        self.state = _state_of(self.model)
        leaves, self._shape = pytree.tree_flatten(self._batch)
        callee = self.model.forward if train_step is None else train_step
        self.inputs = [Slot(name, "input", leaf) for name, leaf in zip(_leaf_names(callee, self._batch), leaves)]
        if len(self.inputs) != len(leaves):
            raise CaptureError("the inputs have a structure whose parts have no names")
        wide = [slot.name for slot in self.state + self.inputs if slot.is_tensor and slot.value.dtype == torch.complex128]
        if wide:
            raise CaptureError(_WIDE.format(wide[0]))
        for slot in self.state:
            if compat.is_made_of_others(slot.value) and not sharding.is_sharded(slot.value):
                raise CaptureError(
                    f"{slot.name} is of {type(slot.value).__name__}, a class of tensors that are made of others, and a graph "
                    "holds plain ones: capture the model before it is converted, or with layers that convert in forward"
                )
        if not any(slot.trainable for slot in self.state):
            raise CaptureError("no parameter of the model requires a gradient: there is no training step to capture")
        self._check_apart()
        self.beside: Dict[str, Place] = {}  # state outside the model, by name
        self.beside_state: List[Slot] = []
        self.requires_grad: Dict[str, bool] = {}  # parameters that a run begins with frozen, or not, unlike the model's
        self.left_requires_grad: Dict[str, bool] = {}  # those that the last run left so
        self.optimizers = Optimizers(optimizer, {id(slot.value): slot.name for slot in self.state})
        self.learn_optimizers()
        if self.optimizers and train_step is None:
            raise CaptureError("optimizer= is what a train_step calls: give train_step=, or leave updates to sg-run")
        if train_step is not None:
            self._check_own()
            self._own = {slot.name: slot.value for slot in self.trainable}
            self._unreadable = kept.unreadable_gradients(self._own)
        self.generators = Generators()
        self.filled: List[Tuple[Slot, Tensor]] = []  # caches, and what they were
        self.made = Made(self.reachable, "model" if train_step is None else "step")
        self._held = Held(self.parameters, self.made.before, self.optimizers.own)
        others = [slot for slot in self.inputs if not slot.is_tensor]
        known = [slot.value for slot in self.state] + [*self.optimizers.own_tensors()]
        known += [place.tensor for place in self.made.before.tensors.values()]
        opened.check([slot.name for slot in others], [slot.value for slot in others], known)

    def _check_own(self) -> None:
        if self.loss_fn is not None or self._batch[2] is not None:
            raise CaptureError("train_step= computes the loss itself: give what it takes in inputs=, and no loss_fn=")

    def _check_apart(self) -> None:
        """Refuses inputs through which gradients would flow to a parameter: an input has no history."""
        names = {id(slot.value): slot.name for slot in self.trainable}
        for slot in self.inputs:
            if slot.is_tensor and slot.value.requires_grad:
                leaves = [slot.value, *(compat.leaves(slot.value.grad_fn) if slot.value.grad_fn is not None else ())]
                name = next((names[id(leaf)] for leaf in leaves if id(leaf) in names), None)
                if name is not None:
                    raise CaptureError(
                        f"the input {slot.name} is made from the parameter {name}, and a gradient by way of it would be "
                        "lost: read it in the step, from the model, or give it as .detach()"
                    )

    def learn_optimizers(self) -> None:
        """Takes in the optimizers' state; the first run creates what does not exist yet."""
        self.optimizers.learn()
        self.optimizer_state = [Slot(name, "buffer", value) for name, value in self.optimizers.tensors().items()]

    def reachable(self) -> beside.Found:
        """What a step keeps besides the model's parameters and buffers, its optimizers and inputs."""
        known = [slot.local for slot in self.tensors] + [*self.optimizers.own_tensors()]
        settings = [part for one in self.optimizers.own for part in (one.defaults, *one.param_groups)]
        found = beside.search(self._functions(), known, self.model, settings)
        beside.add_settings(found, self.optimizers.settings(), known)
        return found

    @property
    def modules_around(self) -> List[Tuple[str, nn.Module]]:
        """The model's modules, and those beside it, with their names."""
        return [*self.model.named_modules(), *self.made.before.modules]

    def _functions(self) -> List[Callable[..., Any]]:
        """The user's functions that run in a train_step."""
        if self.train_step is None:
            return []
        hooks = [*self.optimizers.hooks, *(hook for slot in self.trainable for hook in compat.hooks_of(slot.value))]
        return [self.train_step, *hooks]

    @property
    def modules(self) -> List[str]:
        """The Python modules of its train_step and of its optimizers."""
        return [getattr(self.train_step, "__module__", None) or "", *self.optimizers.modules]

    def take_in(self, places: Dict[str, Place]) -> None:
        """Makes these places state of the step."""
        names = {slot.name for slot in self.state + self.optimizer_state + self.inputs}
        self.beside = {name if name not in names else f"{name}#2": place for name, place in places.items()}
        self.beside_state = [Slot(name, "buffer", place.tensor) for name, place in self.beside.items()]

    @property
    def slots(self) -> List[Slot]:
        return self.state + self.optimizer_state + self.beside_state + self.inputs

    @property
    def tensors(self) -> List[Slot]:
        """The slots that are inputs of the graph; Python values are part of its code."""
        return [slot for slot in self.slots if slot.is_tensor]

    def state_behind(self, tensor: Tensor) -> Optional[Slot]:
        """The state (parameter, buffer, or kept outside the model) that shares the tensor's memory."""
        memory = compat.memory_of(sharding.local(tensor))
        return next((slot for slot in self.state + self.beside_state if compat.memory_of(slot.local) == memory), None)

    @property
    def parameters(self) -> List[Slot]:
        return [slot for slot in self.state if slot.kind == "parameter"]

    def fill_caches(self, as_left: Mapping[str, Tensor], but: Set[str]) -> bool:
        """Lets buffers that are not saved begin as a run has left them, if it has changed any. but: not these."""
        unsaved = {
            f"{path}.{name}" if path else name
            for path, module in self.model.named_modules()
            for name in module._non_persistent_buffers_set
        }
        caches = [slot for slot in self.state if slot.kind == "buffer" and slot.name in unsaved - but]
        self.filled = [(slot, slot.local.clone()) for slot in caches if not torch.equal(slot.local, as_left[slot.name])]
        for slot, _ in self.filled:
            slot.local.detach().copy_(as_left[slot.name])
        return bool(self.filled)

    def empty_caches(self) -> None:
        """As they were."""
        for slot, empty in self.filled:
            slot.local.detach().copy_(empty)
        self.filled = []

    @property
    def trainable(self) -> List[Slot]:
        return [slot for slot in self.state if slot.trainable]

    def run(self, tensors: Sequence[Tensor], recorder: Recorder, is_traced: bool = True) -> Result:
        """Runs the whole step on these local tensors, one for each of `self.tensors`; parameters among them are leaves.
        In-place collectives become functional ones only if `is_traced`."""
        given = dict(zip((id(slot) for slot in self.tensors), tensors))
        state = self._state(given, recorder)
        updated = {slot.name: sharding.leaf(given[id(slot)], slot.value) for slot in self.optimizer_state}
        kept_beside = {slot.name: sharding.leaf(given[id(slot)], slot.value) for slot in self.beside_state}
        args, keywords, targets = self._called_with(given)
        before, before_beside = dict(state), dict(kept_beside)
        for name, is_required in self.requires_grad.items():
            before[name].requires_grad_(is_required)
        # Covers backward as well: what checkpoints recompute there reads the state that forward read.
        plain = fsdp.explicit(self.model, self.units, state, recorder, puts_back=self.train_step is not None)
        casts, calls = compat.casts_in_forward(), inplace.functional() if is_traced else nullcontext()
        outside = swapped(self.beside, kept_beside)
        held = self._held.replaced(before)
        dicts = lambda: beside.dicts(self._functions(), self.model)  # noqa: E731
        replicas, around = self.replicas.explicit(recorder), self.made.before.modules
        with plain as gathers, outside, fsdp.beside_explicit(around, gathers, recorder), held, replicas, casts, calls:
            if self.train_step is not None:
                leaves = {slot.name: before[slot.name] for slot in self.parameters}
                pairs = [(slot.value, before[slot.name]) for slot in self.state]
                users = by_parameter.moved(pairs, dicts, with_new_attributes=True)
                instead = {id(slot.value): before_beside[slot.name] for slot in self.beside_state}
                with users, self.optimizers.running(leaves, updated, instead, recorder):
                    loss, gradients, others = self._by_train_step(args, keywords, before, gathers, recorder)
                    settings = self.optimizers.replaced(self.beside, before_beside)
            else:
                pairs = [(slot.value, given[id(slot)]) for slot in self.state]
                leaves = [given[id(slot)] for slot in self.trainable]
                with by_parameter.moved(pairs, dicts, with_new_attributes=False):
                    found = self._by_loss(args, keywords, targets, leaves, before, recorder)
                (loss, gradients, others), settings = found, {}
        if self.train_step is not None:
            now = {slot.name: before[slot.name].requires_grad for slot in self.parameters}
            frozen = [slot for slot in self.parameters if now[slot.name] != slot.value.requires_grad]
            self.left_requires_grad = {slot.name: now[slot.name] for slot in frozen}
        buffers = [slot.name for slot in self.state if slot.kind == "buffer"]
        rebound = {name: sharding.part(state[name]) for name in buffers if state[name] is not before[name]}
        bound = {name: now for name, now in {**kept_beside, **settings}.items() if now is not before_beside[name]}
        rebound.update({name: sharding.part(now) for name, now in bound.items()})
        rebound.update(self.optimizers.rebound(updated))
        return Result(loss, gradients, others, rebound)

    def as_it_is(self, inputs: Sequence[Tensor]) -> Tuple[Optional[Tensor], Others]:
        """Runs the step on the user's own model and optimizers; returns the loss, and what is returned beside it."""
        slots = [slot for slot in self.inputs if slot.is_tensor]
        args, keywords, targets = self._called_with(dict(zip(map(id, slots), inputs)))
        if self.train_step is None:
            loss, others = self._loss(self.model(*args, **keywords), targets)
            loss.backward()
            return loss, others
        found, others = _apart(self.train_step(*args, **keywords))
        return None if found is None else sharding.plain(found), others

    def own_state(self) -> Dict[str, Tensor]:
        """The tensors that the user's model has now, and the step beside it."""
        buffers = dict(compat.named_buffers(self.model, remove_duplicate=False))
        found = {slot.name: buffers.get(slot.name, slot.value) for slot in self.state}
        return {**found, **{name: place.tensor for name, place in self.beside.items() if place.is_there()}}

    def _called_with(self, given: Mapping[int, Tensor]) -> Any:
        """What the user's function is called with: positional and keyword arguments, and targets."""
        batch = [sharding.whole(given[id(slot)], slot.value) if slot.is_tensor else slot.value for slot in self.inputs]
        return pytree.tree_unflatten(batch, self._shape)

    def _state(self, given: Mapping[int, Tensor], recorder: Recorder) -> Dict[str, Tensor]:
        """The tensors that replace the model's own, by name. Sharded ones are whole DTensors, but without a train_step
        those that a unit of fully_shard gathers are this rank's part."""
        gathered = {shard.fqn for unit in self.units for shard in unit.shards}
        state = {}
        for slot in self.state:
            with recorder.inside(slot.name.rpartition(".")[0]):
                part = given[id(slot)]
                if self.train_step is not None:
                    state[slot.name] = sharding.leaf(part, slot.value)
                else:
                    state[slot.name] = part if slot.name in gathered else sharding.whole(part, slot.value)
        return state

    def _by_loss(
        self,
        args: Any,
        keywords: Any,
        targets: Any,
        leaves: List[Tensor],
        state: Mapping[str, Tensor],
        recorder: Recorder,
    ) -> _Found:
        output = self.replicas.given(*args, **keywords)
        loss, others = self._loss(output, targets)
        self._check_kept(state)
        return loss, self._gradients(loss, leaves, recorder), others

    def _loss(self, output: Any, targets: Any) -> Tuple[Tensor, Others]:
        if self.loss_fn is None:
            found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", output)
        else:
            found = self.loss_fn(output) if targets is None else self.loss_fn(output, targets)
        found, others = _apart(found)
        _check_loss(found, self.loss_fn)
        return sharding.plain(found), others

    def _by_train_step(
        self, args: Any, keywords: Any, state: Mapping[str, Tensor], gathers: fsdp.Gathers, recorder: Recorder
    ) -> _Found:
        """Runs the user's train_step, which may return no loss."""
        assert self.train_step is not None
        leaves = {slot.name: state[slot.name] for slot in self.trainable}
        backwards = own_step.Backwards(recorder, gathers, self.replicas, leaves, lambda: self._bindings(state))
        with backwards.watched(), kept.gradients_refused(self._own, self._unreadable, self._held.read_only):
            found, others = _apart(self.train_step(*args, **keywords))
            self._check_kept(state)
        loss = None if found is None else sharding.plain(found)
        own_step.check_loss(loss)
        backwards.check_trained()
        like = [slot.value for slot in self.trainable]
        gradients = own_step.take_gradients(leaves, like, self.optimizers.gradients)
        for slot, gradient in zip(self.trainable, gradients):
            _check_dense(slot, gradient)
        return loss, gradients, others

    def _check_kept(self, state: Mapping[str, Tensor]) -> None:
        """Refuses another Parameter in the place of one of `state`: gradients and updates would not be of the same
        tensor. A cast, or what fully_shard gathers, is no Parameter."""
        now = dict(compat.named_parameters(self.model, remove_duplicate=False))
        for slot in self.parameters:
            for name in (slot.name, *slot.tied):
                tensor = now.get(name)
                if tensor is not None and tensor is not state[slot.name] and isinstance(tensor, nn.Parameter):
                    raise CaptureError(
                        f"the step assigns another Parameter to {name}, of which the graph would know nothing: write "
                        f"into the one that is there (with torch.no_grad(): model.{name}.copy_(...))"
                    )

    def _bindings(self, state: Mapping[str, Tensor]) -> Iterator[scalers.Place]:
        """The places where a hook may bind another tensor."""
        yield from ((part._buffers, key) for part in self.model.modules() for key in part._buffers)
        keys = {id(slot.value): state[slot.name] for slot in self.parameters}  # for dicts keyed by parameters
        for place in self.beside.values():
            now = place.with_keys(keys)
            yield from ((one.container, one.key) for one in (now, *now.tied) if one.is_there())

    def _gradients(self, loss: Tensor, parameters: List[Tensor], recorder: Recorder) -> List[Optional[Tensor]]:
        for slot, parameter in zip(self.trainable, parameters):
            if not parameter.requires_grad:
                raise CaptureError(f"the model freezes its parameter {slot.name} as it runs: do so before, or in train_step=")
        seed = torch.ones_like(loss)
        with recorder.backward([loss]), torch.autocast(loss.device.type, enabled=False):
            found = _pulled_back(loss, seed, parameters)
        gradients: List[Optional[Tensor]] = []
        with recorder.after_backward():
            for slot, parameter, gradient in zip(self.trainable, parameters, found):
                _check_dense(slot, gradient)
                with recorder.inside(slot.name.rpartition(".")[0]):
                    gradients.append(self.replicas.average(slot.name, parameter, gradient))
        return gradients


def _apart(found: Any) -> Tuple[Any, Others]:
    """Splits a result into the loss and further tensors."""
    if not isinstance(found, tuple) or len(found) != 2:
        return found, {}
    leaves, _ = pytree.tree_flatten(found[1])
    tensors = [leaf.values() if compat.is_jagged(leaf) else leaf for leaf in leaves if isinstance(leaf, Tensor)]
    tensors = [sharding.plain(leaf) for leaf in tensors]
    if any(tensor.dtype == torch.complex128 for tensor in tensors):
        raise CaptureError(_WIDE.format("a tensor beside the loss"))
    return found[0], {f"other{i}": tensor for i, tensor in enumerate(tensors)}


_WIDE = "{} is of complex128, which safetensors files cannot hold: use complex64"


def _taken(parameters: List[Tensor]) -> List[Optional[Tensor]]:
    """Takes the gradients out of the parameters' .grad."""
    found = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    return found


def _pulled_back(loss: Tensor, seed: Tensor, parameters: List[Tensor]) -> Sequence[Optional[Tensor]]:
    """The gradients of the leaves `parameters`."""
    if not compat.has_reentrant_checkpoint(loss):
        # backward() reaches all leaves, and other ranks wait for the collectives on the way to each.
        ours = {id(parameter) for parameter in parameters}
        others = [leaf for leaf in compat.leaves(loss.grad_fn) if id(leaf) not in ours] if world.size() > 1 else []
        found = torch.autograd.grad(loss, [*parameters, *others], grad_outputs=seed, allow_unused=True)
        return found[: len(parameters)]
    # A reentrant checkpoint runs its own backward, which accumulates into the leaves; autograd.grad refuses that.
    torch.autograd.backward(loss, seed)
    return _taken(parameters)


def _check_dense(slot: Slot, gradient: Optional[Tensor]) -> None:
    if gradient is not None and gradient.layout != torch.strided:
        raise CaptureError(
            f"the gradient of {slot.name} is sparse, which no graph holds: sparse=False in its module"
        )


def _check_loss(loss: Any, loss_fn: Loss) -> None:
    source = "the loss function" if loss_fn is not None else "the model, without a loss function,"
    if not isinstance(loss, Tensor):
        raise CaptureError(
            f"{source} returned {type(loss).__name__} and no tensor. Give loss_fn=, which takes the model's "
            "output (and the targets, where given) and returns the loss"
        )
    if loss.numel() != 1:
        raise CaptureError(f"{source} returned a tensor of size {tuple(loss.shape)}; a loss is one number")
    if not loss.requires_grad:
        raise CaptureError(f"the loss that {source} returned depends on no parameter that requires a gradient")


def _arguments(inputs: Any, kwargs: Optional[Mapping[str, Any]]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """A mapping gives keyword arguments, a tuple or list positional ones, anything else is the only argument."""
    keywords = dict(kwargs or {})
    if isinstance(inputs, Mapping):
        twice = sorted(set(inputs) & set(keywords))
        if twice:
            raise CaptureError(f"{', '.join(twice)}: given in inputs= and in kwargs=")
        return (), {**inputs, **keywords}
    return (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)), keywords


def _state_of(model: nn.Module) -> List[Slot]:
    """Parameters, then buffers, each once, with their other names in `tied`."""
    slots: Dict[int, Slot] = {}
    lazy = [name for name, tensor in (*compat.named_parameters(model), *compat.named_buffers(model)) if is_lazy(tensor)]
    if lazy:
        raise CaptureError(f"{lazy[0]} has no size yet, as its module is lazy: run the model on a batch before")
    for kind, pairs in (
        ("parameter", compat.named_parameters(model, remove_duplicate=False)),
        ("buffer", compat.named_buffers(model, remove_duplicate=False)),
    ):
        for name, tensor in pairs:
            if id(tensor) in slots:
                slots[id(tensor)].tied.append(name)
            else:
                slots[id(tensor)] = Slot(name, kind, tensor, kind == "parameter" and tensor.requires_grad)
    return list(slots.values())


def _leaf_names(callee: Callable[..., Any], batch: Tuple[Tuple[Any, ...], Dict[str, Any], Any]) -> List[str]:
    """Names of inputs (`input_ids`, `mask.full`, `targets`): parameter names of the callee, then keys within structures."""
    args, keywords, targets = batch
    try:
        parameters = list(inspect.signature(callee).parameters.values())
    except ValueError:  # of a module that torch.jit has traced, nobody knows them
        parameters = []
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    star = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    names = [positional[i] if i < len(positional) else f"{star}.{i - len(positional)}" for i in range(len(args))]
    found: List[str] = []
    for name, value in [*zip(names, args), *keywords.items(), ("targets", targets)]:
        for path, _ in pytree.tree_flatten_with_path(value)[0]:
            found.append(".".join([name, *map(opened.step_of, path)]))
    taken: Dict[str, int] = {}
    for i, name in enumerate(found):
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1:  # an argument of forward that is itself called targets
            found[i] = f"{name}#{taken[name]}"
    return found

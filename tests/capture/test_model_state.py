"""What a model keeps among its attributes, or registers as it runs: caches are computed in the graph, state is an input
that the graph writes, and neither is left behind."""

import torch
from stepgraph_capture import CaptureError
from safetensors.torch import load_file
from torch import nn

from support import CaptureCase


class Centred(nn.Module):
    """keep(model, mean): what this batch is centred by."""

    def __init__(self, keep, **attributes):
        super().__init__()
        self.linear, self.keep = nn.Linear(4, 4), keep
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return (self.linear(x) - self.keep(self, x.mean(0).detach())).square().mean()


def assigned(model, mean):
    model.running = 0.9 * model.running + 0.1 * mean
    return model.running


def written(model, mean):
    return model.running.mul_(0.9).add_(mean, alpha=0.1)


def in_list(model, mean):
    model.means[0] = 0.9 * model.means[0] + 0.1 * mean
    return model.means[0]


def in_dict(model, mean):
    model.means["x"] = 0.9 * model.means["x"] + 0.1 * mean
    return model.means["x"]


def registered_state(model, mean):
    if not hasattr(model, "running"):
        model.register_buffer("running", torch.zeros(4))
    return assigned(model, mean)


def declared_state(model, mean):
    if model.running is None:
        model.running = torch.zeros(4)
    return assigned(model, mean)


def registered_cache(model, mean):
    if not hasattr(model, "offsets"):
        model.register_buffer("offsets", torch.arange(4.0), persistent=False)
    return model.offsets


def cache_by_size(model, mean):
    if len(mean) not in model.cache:
        model.cache[len(mean)] = torch.arange(4.0)
    return model.cache[len(mean)]


def declared_cache(model, mean):
    if model.offsets is None:
        model.offsets = torch.arange(4.0)
    return model.offsets


class ModelState(CaptureCase):
    def setUp(self):
        super().setUp()
        self.x = torch.randn(3, 4)

    def buffers(self, document):
        return {entry["fqn"] for entry in document["inputs"] if entry["kind"] == "buffer"}

    def check_state(self, model, name):
        document = self.captured(model, None, (self.x,))
        self.assertEqual(self.buffers(document), {name})
        self.check_steps(model, {"x": self.x})

    def check_cache(self, model):
        before = {**vars(model), **model._buffers}
        document = self.captured(model, None, (self.x,))
        self.assertEqual(self.buffers(document), set())
        self.assertNotIn("constant", {entry["kind"] for entry in document["inputs"]})
        self.assertEqual({**vars(model), **model._buffers}.keys(), before.keys())
        self.assertIsNone(getattr(model, "offsets", None))
        self.imported()
        model(self.x)  # as good as new

    def test_a_view_of_a_buffer_that_a_model_keeps(self):
        """It is refused, as the graph could not write there, and the buffer is as before."""

        class Kept(nn.Module):
            def __init__(self):
                super().__init__()
                self.line = nn.Linear(4, 4)
                self.register_buffer("sums", torch.zeros(2, 4))
                self.view = self.sums[0]

            def forward(self, x):
                self.view.add_(x.mean(0).detach() + 1)
                return self.line(x)

        model = Kept()
        with self.assertRaises(CaptureError):
            self.captured(model, lambda out: out.square().mean(), torch.randn(5, 4))
        self.assertFalse(model.sums.any())

    def test_a_cache_in_a_buffer_that_a_number_guards(self):
        """The first run fills it; the second takes it for full, and so does the graph. The model is as before."""

        class Cached(nn.Module):
            def __init__(self, later):
                super().__init__()
                self.line, self.filled, self.later = nn.Linear(4, 4), 0, later
                self.register_buffer("cache", torch.zeros(8, 4), persistent=False)
                self.register_buffer("seen", torch.zeros(()), persistent=False)  # is counted in each run

            def forward(self, x):
                self.seen += 1
                if self.filled < len(x):
                    self.cache[: len(x)] = torch.arange(len(x))[:, None].float().cos()
                    self.filled = len(x)
                elif self.later:
                    x = x * self.later
                return self.line(x * self.cache[: len(x)])

        model = Cached(0)
        document = self.captured(model, lambda out: out.square().mean(), torch.randn(5, 4))
        begins = {e["fqn"]: load_file(f"{self.folder}/inputs.safetensors")[e["name"]] for e in document["inputs"] if "fqn" in e}
        self.assertTrue(begins["cache"].any() and not begins["seen"])
        self.assertFalse([node["op"] for node in document["nodes"] if "cos" in node["op"] or "copy_" in node["op"]])
        self.assertEqual(document["note"], "cache is a cache that a first run fills, and begins as that leaves it")
        self.assertTrue(model.filled == 0 and not model.cache.any())
        self.imported()

        def train_step(x):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.captured(model, None, {"x": torch.randn(5, 4)}, train_step=train_step, optimizer=optimizer)
        self.assertTrue(model.filled == 0 and not model.cache.any())
        model = Cached(2)  # full, it computes something else
        with self.assertRaisesRegex(CaptureError, "changes filled, has another loss or gradients than later ones"):
            self.captured(model, lambda out: out.square().mean(), torch.randn(5, 4))
        self.assertTrue(model.filled == 0 and not model.cache.any())

    def test_names_with_dots(self):
        """As tensordict keeps the parameters of a whole module in one."""

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.flat = nn.Module()
                self.flat._parameters["0.weight"] = nn.Parameter(torch.randn(3, 4))
                self.flat._buffers["0.scale"] = torch.ones(3)

            def forward(self, x):
                (weight,), (scale,) = self.flat._parameters.values(), self.flat._buffers.values()
                return (x @ weight.T * scale).square().sum()

        document = self.captured(Model(), None, torch.randn(2, 4))
        self.assertEqual([entry["fqn"] for entry in document["inputs"]], ["flat.0.weight", "flat.0.scale", "x"])
        self.imported()

    def test_a_class_that_lists_its_parameters_itself(self):
        """With PyTorch's older arguments, and not all of them."""

        class Model(nn.Linear):
            def named_parameters(self, prefix="", recurse=True):
                return (pair for pair in super().named_parameters(prefix, recurse) if pair[0] != "bias")

        document = self.captured(Model(4, 3), lambda out: out.square().sum(), torch.randn(2, 4))
        names = [entry["fqn"] for entry in document["inputs"] if entry["kind"] == "parameter"]
        self.assertEqual(names, ["weight", "bias"])
        self.imported()

    def test_attribute_assigned(self):
        self.check_state(Centred(assigned, running=torch.zeros(4)), "running")

    def test_attribute_written(self):
        self.check_state(Centred(written, running=torch.zeros(4)), "running")

    def test_attribute_in_a_list(self):
        self.check_state(Centred(in_list, means=[torch.zeros(4)]), "means.0")

    def test_attribute_in_a_dict(self):
        self.check_state(Centred(in_dict, means={"x": torch.zeros(4)}), "means.x")

    def test_attribute_in_a_step(self):
        model = Centred(assigned, running=torch.zeros(4))

        def step(x):
            loss = model(x)
            loss.backward()
            model.zero_grad()
            return loss

        document = self.captured(model, None, (self.x,), train_step=step)
        self.assertEqual(self.buffers(document), {"running"})
        self.check_steps(step, {"x": self.x})

    def test_made_by_the_first_run(self):
        for keep, attributes in ((registered_state, {}), (declared_state, {"running": None})):
            with self.subTest(keep.__name__):
                model = Centred(keep, **attributes)
                with self.assertRaisesRegex(CaptureError, "the model reads running, which its first run makes.*Run it once"):
                    self.captured(model, None, (self.x,))
                self.assertIsNone(getattr(model, "running", None))
                model(self.x)
                self.check_state(model, "running")

    def test_cache_that_is_registered(self):
        self.check_cache(Centred(registered_cache))

    def test_cache_that_is_declared(self):
        model = Centred(declared_cache)
        model.register_buffer("offsets", None, persistent=False)
        self.check_cache(model)

    def test_cache_in_a_dict(self):
        model = Centred(cache_by_size, cache={})
        self.check_cache(model)

    def test_cache_of_objects(self):
        """Which each forward renews, of a model that has made a step before."""

        class Prior:
            def __init__(self, loc, scale):
                self.loc, self.of = loc, {"scale": scale}

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))

            def forward(self, x):
                self.cache = {"prior": Prior(torch.zeros_like(self.weight), torch.ones_like(self.weight))}
                return x * self.weight * self.cache["prior"].of["scale"] - self.cache["prior"].loc

        model = Model()
        model(torch.randn(4, 3))
        prior = model.cache["prior"]
        self.captured(model, lambda out: out.square().sum(), {"x": torch.randn(4, 3)})
        self.assertIs(type(prior.loc), torch.Tensor)
        self.assertIs(type(model.cache["prior"].of["scale"]), torch.Tensor)
        self.imported()

    def test_last_values_are_no_state(self):
        def keep(model, mean):
            model.last = mean
            return mean

        model = Centred(keep)
        for name in ("before", "after"):
            with self.subTest(f"the capture {name} its first run"):
                self.assertEqual(self.buffers(self.captured(model, None, (self.x,))), set())
                model(self.x)

    def test_weight_made_of_two(self):
        model = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 2)))  # assigns `weight` before each run
        self.captured(model, lambda y: y.square().mean(), (self.x,))
        self.imported()

    def test_attributes_of_other_kinds(self):
        """Tensors that no step writes, and objects that lead to the data."""

        class Trainer:
            def __init__(self, model):
                self.model, self.loops = model, {"fit": {"data": [torch.ones(2)]}}

        quantized = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        others = (quantized, nested, torch.eye(3).to_sparse(), torch.ones(3, device="meta"), torch.ones(2).to(torch.float8_e4m3fn),
                  torch.randn(3, dtype=torch.complex64).conj(), torch.zeros(1).expand(10, 10), torch.Generator())  # fmt: skip
        for other in others:
            with self.subTest(str(other)):
                model = Centred(lambda model, mean: mean, other=other)
                model.trainer = Trainer(model)
                self.assertEqual(self.buffers(self.captured(model, None, (self.x,))), set())

    def test_count(self):
        def keep(model, mean):
            model.runs += 1
            return float(model.runs)

        model = Centred(keep, runs=0)
        with self.assertRaisesRegex(CaptureError, "first run of the model, which changes runs, has another loss"):
            self.captured(model, None, (self.x,))
        self.assertEqual(model.runs, 0)

    def test_count_that_nothing_reads(self):
        def keep(model, mean):
            model.runs += 1
            return mean

        model = Centred(keep, runs=5)
        self.captured(model, None, (self.x,))
        self.assertEqual(model.runs, 5)

    def test_averages_of_all_batches(self):
        """BatchNorm makes a number of its count, which goes on in the graph."""
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None), nn.Linear(6, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        inputs = {"x": torch.randn(5, 4)}

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach() + model[1].running_mean.sum() + model[1].running_var.sum()

        self.captured(model, None, inputs, train_step=step, optimizer=optimizer)
        self.check_steps(step, inputs)

    def test_without_a_run(self):
        model = Centred(assigned, running=torch.zeros(4))
        with self.assertRaisesRegex(CaptureError, "reads running of the model and assigns another tensor to it: make it a buffer"):
            self.captured(model, None, (self.x,), fake=True)
        self.assertTrue(torch.equal(model.running, torch.zeros(4)))

"""Calls of overloads for make_vectors.py that no sample of OpInfo gives: other arguments than the function's, composites that
PyTorch takes apart before anybody sees them, in-place forms. By name: element type -> calls; PyTorch says which types it takes."""
import torch
from torch.testing import make_tensor

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def some(dtype, *shape, low=None, high=None):
    return make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)


def kept_small(dtype, *shape):
    return some(dtype, *shape, low=0 if dtype in (torch.bool, torch.uint8) else -3, high=1 if dtype == torch.bool else 3)


def floats_only(make):
    return lambda d: make(d) if d in FLOATS else []


def scores(d):
    """Of samples and classes, with one label that counts for nothing."""
    return some(d, 5, 4), torch.tensor([0, 3, 1, -100, 2])


def bag(d):
    return [some(d, 7, 3), torch.tensor([1, 4, 4, 6, 0, 2]), torch.tensor([0, 2, 5])]


def padded(d):
    """Pieces of 2, none and 3 rows, padded to more, to the longest, and to less than that; with narrow offsets; of no rows."""
    ends, rows = torch.tensor([0, 2, 2, 5]), [some(d, 5), some(d, 5, 2), some(d, 5, 2, 3)]
    calls = [([t, [ends], [n], 1.0], {}) for t in rows for n in (4, 3, 2)]
    return calls + [([rows[1], [ends.int()], [3]], {}), ([some(d, 0, 2), [ends * 0], [3], 1.0], {}), ([rows[1], [ends], [0]], {})]


def unpadded(d):
    ends, dense = torch.tensor([0, 2, 2, 5]), [some(d, 3, 3), some(d, 3, 4, 2), some(d, 3, 4, 2, 3)]
    return [([t, [ends], 5], {}) for t in dense] + [([dense[1], [ends.int()], 5], {}), ([dense[1].mT.contiguous().mT, [ends], 5], {})]


def recurrent(gates, d):
    """(input, first state, weights and biases of both directions of one layer of 3 to 4)."""
    x, state = some(d, 5, 2, 3), some(d, 2, 2, 4)
    one = [some(d, gates * 4, 3), some(d, gates * 4, 4), some(d, gates * 4), some(d, gates * 4)]
    return x, state, one + [t.flip(0).contiguous() for t in one]


def rnn(gates, with_cell=False):
    def make(d):
        x, state, weights = recurrent(gates, d)
        out = []
        for both, first in ((True, False), (False, False), (False, True)):
            h = state if both else state[:1].contiguous()
            hx = [h, h.flip(0).contiguous() / 2] if with_cell else h
            if first:
                x = x.transpose(0, 1).contiguous()
            out.append(([x, hx, weights if both else weights[:4], True, 1, 0.0, False, both, first], {}))
            x = recurrent(gates, d)[0]
        return out
    return floats_only(make)


def cell(gates, with_cell=False):
    def make(d):
        h = some(d, 2, 4)
        hx = [h, some(d, 2, 4)] if with_cell else h
        weights = [some(d, gates * 4, 3), some(d, gates * 4, 4)]
        biases = [some(d, gates * 4), some(d, gates * 4)]
        return [([some(d, 2, 3), hx, *weights, *biases], {}), ([some(d, 2, 3), hx, *weights], {})]
    return floats_only(make)


def nll(*sizes):
    def make(d):
        x, y = some(d, 3, 4, *sizes), torch.randint(0, 4, (3, *sizes))
        return [([x, y], {}), ([x, y, some(d, 4, low=0.1, high=1), 0], {}), ([x, y, None, 2, 1], {})]
    return floats_only(make)


def pairs_of(d):
    return some(d, 5, 4), some(d, 5, 4)


def signs(*shape):
    return torch.randint(0, 2, shape) * 2 - 1


def bitwise(number):
    def make(d):
        other = kept_small(d, 3, 4)
        return [([kept_small(d, 3, 4), number if d != torch.bool else True], {})] if number is not None else \
            [([kept_small(d, 3, 4), other], {}), ([kept_small(d, 3, 4), other[0]], {})]
    return lambda d: [] if d.is_floating_point or d.is_complex else make(d)


def statistics(d):
    return [some(d, 3, 4, 5), some(d, 4), some(d, 4), some(d, 4), some(d, 4, low=0.1, high=2)]


def columns(*shapes):
    return lambda d: [([[some(d, *shape) for shape in shapes]], {})]


def einsums(d):
    a, b = kept_small(d, 2, 3, 4), kept_small(d, 2, 4, 5)
    return [(["bij,bjk->bik", [a, b]], {}), (["bij->bji", [a]], {}), (["...ij,...jk", [a, b]], {}),
            (["bij,bij->b", [a, a.clone()]], {}), (["i,j->ij", [kept_small(d, 3), kept_small(d, 4)]], {}), (["ii->i", [kept_small(d, 3, 3)]], {})]


def normed(d):
    x, weight = some(d, 3, 4, 6), some(d, 6)
    rstd = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)
    return [([some(d, 3, 4, 6), x, [6], rstd, w, [True, w is not None]], {}) for w in (weight, None)]


def bag_backward(d):
    weight, indices, offsets = bag(d)
    out = []
    for mode in (0, 1, 2):
        _, offset2bag, size, most = torch.ops.aten._embedding_bag.default(weight, indices, offsets, False, mode)
        if mode != 2:
            offset2bag = torch.tensor([0, 0, 1, 1, 1, 2])
        for is_scaled in (False, True)[: 1 if mode == 2 else 2]:
            out.append(([some(d, 3, 3), indices, offset2bag, size, most, 7, is_scaled, mode, None], {}))
    return out


def windows(*more):
    """Lengths with nothing, one number, an even and an odd one."""
    return floats_only(lambda d: [([n, *rest], {"dtype": d, "device": torch.device("cpu")}) for n in (0, 1, 8, 11) for rest in more])


def frequencies(d):
    return [([n, spacing], {"dtype": d, "device": torch.device("cpu")}) for n in (1, 2, 7, 8) for spacing in (1.0, 0.3)] if d in FLOATS else []


def parts_to_join(d):
    """Tensors whose parts along an axis are not equal, and how many parts."""
    return [some(d, 5, 3), some(d, 4, 2, 2), some(d, 1)], 0, 3


def polynomials():
    """Of a number at degrees, and of degrees that are numbers: whole ones, others and negative ones."""
    names = [f"chebyshev_polynomial_{k}" for k in "tuvw"] + [f"shifted_chebyshev_polynomial_{k}" for k in "tuvw"] + [
        "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]
    out = {}
    for name in names:
        out[f"aten.special_{name}.x_scalar"] = lambda d: [([x, some(d, 3, 4, low=0, high=1 if d == torch.bool else 9)], {}) for x in (0.7, -1, 1.5)]
        out[f"aten.special_{name}.n_scalar"] = lambda d: [([some(d, 3, 4, low=0 if d in (torch.bool, torch.uint8) else -2, high=1 if d == torch.bool else 2), n], {}) for n in (0, 3, 12, 2.7, -1)]
    return out


def between(start_is_tensor, end_is_tensor, *more):
    """Numbers of each type, between tensors of it and of another."""
    def end(d, value, is_tensor):
        return torch.tensor(value, dtype=torch.int64 if d == torch.bool else d) if is_tensor else value
    def make(d):
        place = {"dtype": d, "device": torch.device("cpu")}
        return [([end(o, a, start_is_tensor), end(o, b, end_is_tensor), n, *more], place)
                for o, a, b, n in ((d, 1, 4, 6), (torch.float32, -1.25, 2.5, 5), (torch.float64, 3.75, 0.5, 1), (d, 2, 2, 0), (torch.bfloat16, 0.1, 1.7, 4))]
    return make


CALLS = {
    **polynomials(),
    **{f"aten.{what}.{name}": between(*tensors, *more) for name, *tensors in (("Tensor_Tensor", True, True), ("Tensor_Scalar", True, False), ("Scalar_Tensor", False, True))
       for what, more in (("linspace", ()), ("logspace", (2.0,)))},
    "aten._chunk_cat.default": lambda d: [(list(parts_to_join(d)), {}), ([[some(d, 2, 7, 3), some(d, 2, 4, 1)], -2, 4], {})],
    "aten._chunk_cat.out": lambda d: [(list(parts_to_join(d)), {"out": torch.zeros(3, 6 + 8 + 1, dtype=d)})],
    "aten.embedding_renorm.default": floats_only(lambda d: [([some(d, 7, 3), torch.tensor([[1, 4], [4, 0]]), 2.5, p], {}) for p in (2.0, 1.0, float("inf"))]),
    "aten.batch_norm_backward.default": floats_only(lambda d: [([*(some(d, 3, 4, 5) for _ in range(2)), some(d, 4), some(d, 4), some(d, 4, low=0.1, high=2), some(d, 4), some(d, 4, low=0.1, high=2), train, 1e-5,
                                                                 [True, True, True], torch.zeros(0, dtype=torch.uint8)], {}) for train in (True, False)]),
    "aten._upsample_lanczos2d_aa.default": lambda d: [([some(d, 1, 2, 9, 7, low=0, high=200), size, a, None, None], {}) for size in ([4, 3], [12, 9]) for a in (False, True)],
    "aten._upsample_lanczos2d_aa.vec": lambda d: [([some(d, 1, 2, 9, 7, low=0, high=200), [4, 5], a, None], {}) for a in (False, True)] + [([some(d, 1, 2, 9, 7), None, False, [0.5, 1.7]], {})],
    "aten._upsample_lanczos2d_aa_backward.default": floats_only(lambda d: [([some(d, 1, 2, 3, 4), [3, 4], [1, 2, 6, 5], a, None, None], {}) for a in (False, True)]),
    "aten.__and__.Scalar": bitwise(5), "aten.__and__.Tensor": bitwise(None),
    "aten.__or__.Scalar": bitwise(5), "aten.__or__.Tensor": bitwise(None),
    "aten.__xor__.Scalar": bitwise(5), "aten.__xor__.Tensor": bitwise(None),
    "aten._conj.default": lambda d: [([some(d, 3, 4)], {})] if d.is_complex else [],
    "aten._neg_view.default": lambda d: [([some(d, 3, 4)], {})] if d != torch.bool else [],
    "aten._is_all_true.default": lambda d: [([torch.tensor(v)], {}) for v in ([True, True], [True, False], [])] if d == torch.bool else [],
    "aten._is_any_true.default": lambda d: [([torch.tensor(v)], {}) for v in ([False, True], [False, False])] if d == torch.bool else [],
    "aten._reshape_alias.default": lambda d: [([some(d, 3, 4), [2, 6], [6, 1]], {}), ([some(d, 3, 4), [4, 3], [1, 4]], {})],
    "aten._unsafe_index.Tensor": lambda d: [([some(d, 4, 5), [torch.tensor([2, 0, 3]), None]], {}), ([some(d, 4, 5), [None, torch.tensor([4, 4])]], {})],
    "aten._unsafe_index_put.default": lambda d: [([some(d, 4, 5), [torch.tensor([2, 0, 3]), None], some(d, 3, 5)], {})],
    "aten._weight_norm.default": floats_only(lambda d: [([some(d, 4, 3), some(d, 4, 1), 0], {}), ([some(d, 4, 3), some(d, 1, 3), 1], {})]),
    "aten.affine_grid_generator.default": floats_only(lambda d: [([some(d, 2, 2, 3), [2, 3, 4, 5], a], {}) for a in (False, True)] + [([some(d, 1, 3, 4), [1, 2, 3, 4, 5], False], {})]),
    "aten.alpha_dropout.default": floats_only(lambda d: [([some(d, 4, 5), 0.5, False], {})]),
    "aten.atan2.out": lambda d: [([some(d, 3, 4), some(d, 3, 4)], {"out": torch.zeros(3, 4, dtype=o)}) for o in ((d,) if d.is_floating_point else (torch.float32,))],
    "aten.bernoulli.Tensor": floats_only(lambda d: [([some(d, 4, 5), some(d, 4, 5, low=0, high=1)], {})]),
    "aten.bernoulli.p": floats_only(lambda d: [([some(d, 4, 5), 0.3], {})]),
    "aten.bernoulli_.Tensor": lambda d: [([some(d, 4, 5), some(torch.float32, 4, 5, low=0, high=1)], {})],
    "aten.broadcast_tensors.default": columns((3, 1), (1, 4), (2, 3, 4)),
    "aten.cartesian_prod.default": columns((3,), (4,)),
    "aten.cdist.default": floats_only(lambda d: [([some(d, 2, 5, 3), some(d, 2, 4, 3), p], {}) for p in (2.0, 1.0, float("inf"))] + [([some(d, 30, 3), some(d, 4, 3)], {})]),
    "aten.cosine_embedding_loss.default": floats_only(lambda d: [([*pairs_of(d), signs(5), 0.1, r], {}) for r in (0, 1, 2)]),
    "aten.detach_.default": lambda d: [([some(d, 3, 4)], {})],
    "aten.dropout.default": floats_only(lambda d: [([some(d, 3, 4), 0.5, False], {}), ([some(d, 3, 4), 0.0, True], {})]),
    "aten.einsum.default": einsums,
    "aten._new_zeros_with_same_feature_meta.default": lambda d: [([some(d, 2, 3), some(d, 3, 2).t()], {}), ([some(d, 5), some(d, 4, 2)[:, 0]], {}),
                                                                ([some(d, 7, 2, 3), some(d, 4)], {"self_num_batch_dims": 1})],
    "aten._embedding_bag_dense_backward.default": floats_only(bag_backward),
    "aten._jagged_to_padded_dense_forward.default": padded,
    "aten._padded_dense_to_jagged_forward.default": unpadded,
    "aten.embedding_bag.default": floats_only(lambda d: [([*bag(d), False, mode], {}) for mode in (0, 1, 2)] + [([*bag(d), False, 0, False, some(d, 6)], {})]),
    "aten.embedding_bag.padding_idx": floats_only(lambda d: [([*bag(d), False, mode, False, None, False, 4], {}) for mode in (0, 1)]),
    "aten.feature_alpha_dropout.default": floats_only(lambda d: [([some(d, 2, 3, 4), 0.5, False], {})]),
    "aten.feature_dropout.default": floats_only(lambda d: [([some(d, 2, 3, 4), 0.5, False], {})]),
    "aten.fft_fftshift.default": lambda d: [([some(d, 4, 5)], {}), ([some(d, 4, 5), [1]], {})],
    "aten.fft_ifftshift.default": lambda d: [([some(d, 4, 5)], {}), ([some(d, 4, 5), [1]], {})],
    "aten._fused_rms_norm_backward.default": floats_only(normed),
    "aten.grid_sampler.default": floats_only(lambda d: [([some(d, 1, 2, 4, 5), some(d, 1, 3, 3, 2, low=-1.2, high=1.2), m, p, a], {})
                                                        for m, p, a in ((0, 0, False), (1, 1, True), (2, 2, False))]),
    "aten.gru.input": rnn(3), "aten.gru_cell.default": cell(3), "aten.lstm.input": rnn(4, True), "aten.lstm_cell.default": cell(4, True),
    "aten.hann_window.default": windows([]), "aten.hann_window.periodic": windows([False], [True]),
    "aten.hamming_window.default": windows([]), "aten.hamming_window.periodic": windows([False], [True]),
    "aten.hamming_window.periodic_alpha": windows([False, 0.6]), "aten.hamming_window.periodic_alpha_beta": windows([False, 0.6, 0.3], [True, 0.5, 0.5]),
    "aten.blackman_window.default": windows([]), "aten.blackman_window.periodic": windows([False], [True]),
    "aten.bartlett_window.default": windows([]), "aten.bartlett_window.periodic": windows([False], [True]),
    "aten.kaiser_window.default": windows([]), "aten.kaiser_window.periodic": windows([False], [True]), "aten.kaiser_window.beta": windows([False, 8.5], [True, 2.0]),
    "aten.fft_fftfreq.default": frequencies, "aten.fft_rfftfreq.default": frequencies,
    "aten.conv_tbc.default": floats_only(lambda d: [([some(d, 6, 2, 3), some(d, k, 3, 4), some(d, 4), pad], {}) for k, pad in ((3, 1), (2, 0), (1, 2))]),
    "aten.nonzero_static.default": lambda d: [([kept_small(d, *shape)], {"size": n, "fill_value": -1}) for shape in ((3, 4), (5,), ()) for n in (0, 4, 20)],
    "aten.normal.float_float": floats_only(lambda d: [([1.0, 2.0, [3, 4]], {"dtype": d, "device": torch.device("cpu")})]),
    "aten.triu_indices.default": lambda d: [([*shape, offset], {"dtype": d, "device": torch.device("cpu")}) for shape in ((3, 5), (5, 3), (0, 2)) for offset in (-7, -1, 0, 2, 9)] if d in (torch.int64, torch.int32) else [],
    "aten._standard_gamma.default": floats_only(lambda d: [([some(d, 4, 5, low=0.05, high=9)], {})]),
    "aten._standard_gamma_grad.default": floats_only(lambda d: [([some(d, 6, 7, low=0.05, high=high), some(d, 6, 7, low=0.01, high=2 * high)], {}) for high in (1, 9, 80)]),
    "aten._sample_dirichlet.default": floats_only(lambda d: [([some(d, 4, 5, low=0.05, high=9)], {})]),
    "aten._dirichlet_grad.default": floats_only(lambda d: [([some(d, 6, 7, low=0.02, high=0.98), some(d, 6, 7, low=0.05, high=high), some(d, 6, 7, low=1.1 * high, high=3 * high)], {}) for high in (1, 9, 40)]),
    "aten.poisson.default": floats_only(lambda d: [([some(d, 4, 5, low=0, high=60)], {})]),
    "aten.binomial.default": floats_only(lambda d: [([some(d, 4, 5, low=1, high=60).round(), some(d, 4, 5, low=0, high=1)], {})]),
    "aten._convert_indices_from_coo_to_csr.default": lambda d: [([torch.tensor(rows, dtype=d), 4], {"out_int32": narrow}) for rows in ([0, 0, 1, 3, 3, 3], [], [2]) for narrow in (False, True)] if d in (torch.int32, torch.int64) else [],
    "aten.unique_dim.default": lambda d: [([some(d, 9, 2, low=0, high=2), dim, True, asked, asked], {}) for dim in (0, 1) for asked in (False, True)],
    "aten._int_mm.default": lambda d: [([some(d, m, k), some(d, k, n)], {}) for m, k, n in ((3, 5, 4), (1, 300, 2))] if d == torch.int8 else [],
    "aten.kl_div.default": floats_only(lambda d: [([*(t.abs() for t in pairs_of(d)), r], {"log_target": g}) for r, g in ((0, False), (1, True), (2, False))]),
    "aten.lift_fresh_copy.default": lambda d: [([some(d, 3, 4)], {})],
    "aten.margin_ranking_loss.default": floats_only(lambda d: [([*pairs_of(d), signs(5, 4), 0.2, r], {}) for r in (0, 1, 2)]),
    "aten.matrix_H.default": lambda d: [([some(d, 3, 4)], {})],
    "aten.max_pool1d_with_indices.default": floats_only(lambda d: [([some(d, 2, 3, 9), [3], [2], [1], [1], c], {}) for c in (False, True)]),
    "aten.moveaxis.int": lambda d: [([some(d, 2, 3, 4), 0, 2], {})],
    "aten._native_batch_norm_legit_functional.default": floats_only(lambda d: [([*statistics(d), t, 0.1, 1e-5], {}) for t in (True, False)]),
    "aten._batch_norm_with_update_functional.default": floats_only(lambda d: [([*statistics(d), 0.1, 1e-5], {})]),
    "aten.native_dropout.default": floats_only(lambda d: [([some(d, 3, 4), 0.5, t], {}) for t in (True, False)]),
    "aten.nll_loss.default": nll(), "aten.nll_loss2d.default": nll(2, 5), "aten.nll_loss_nd.default": lambda d: nll()(d) + nll(6)(d) + nll(2, 5)(d),
    "aten.norm_except_dim.default": floats_only(lambda d: [([some(d, 3, 4), 2, 0], {}), ([some(d, 3, 4), 2, 1], {}), ([some(d, 3, 4), 1, -1], {})]),
    "aten.normal_functional.default": floats_only(lambda d: [([some(d, 3, 4), 1.0, 2.0], {})]),
    "aten.numpy_T.default": lambda d: [([some(d, 3, 4)], {}), ([some(d, 2, 3, 4)], {})],
    "aten.poisson_nll_loss.default": floats_only(lambda d: [([*pairs_of(d), g, f, 1e-8, r], {}) for g, f, r in ((True, False, 1), (True, True, 0))]),
    "aten.random.default": lambda d: [([some(d, 4, 5)], {})],
    "aten.random.from": lambda d: [([some(d, 4, 5), 1, 9], {})] if d != torch.bool else [],
    "aten.random.to": lambda d: [([some(d, 4, 5), 2], {})],
    "aten.random_.default": lambda d: [([some(d, 4, 5)], {})],
    "aten.random_.from": lambda d: [([some(d, 4, 5), 1, 9], {})] if d != torch.bool else [],
    "aten.random_.to": lambda d: [([some(d, 4, 5), 2], {})],
    "aten.randperm.default": lambda d: [([7], {"dtype": d, "device": torch.device("cpu")})],
    "aten.rnn_relu.input": rnn(1), "aten.rnn_relu_cell.default": cell(1), "aten.rnn_tanh.input": rnn(1), "aten.rnn_tanh_cell.default": cell(1),
    "aten._upsample_bilinear2d_aa_backward.default": floats_only(lambda d: [([some(d, 1, 2, 3, 4), [3, 4], [1, 2, 6, 5], a, None, None], {}) for a in (False, True)]),
    "aten.select_copy.int": lambda d: [([some(d, 3, 4), 0, 1], {}), ([some(d, 3, 4), 1, -1], {})],
    "aten.selu_.default": floats_only(lambda d: [([some(d, 3, 4)], {})]),
    "aten.special_multigammaln.default": floats_only(lambda d: [([some(d, 3, 4, low=3, high=9), 2], {})]),
    "aten.split_with_sizes_copy.out": lambda d: [([some(d, 5, 3), [2, 3]], {"out": [torch.zeros(2, 3, dtype=d), torch.zeros(3, 3, dtype=d)]})],
    "aten.tensordot.default": lambda d: [([kept_small(d, 2, 3, 4), kept_small(d, 4, 3, 5), [1, 2], [1, 0]], {}), ([kept_small(d, 3), kept_small(d, 3), [0], [0]], {})],
    "aten.type_as.default": lambda d: [([some(d, 3, 4), some(to, 2)], {}) for to in (torch.float32, torch.int64)],
    "aten.unsafe_split_with_sizes.default": lambda d: [([some(d, 5, 3), [2, 3]], {}), ([some(d, 3, 6), [1, 2, 3], 1], {})],
    "aten.view.dtype": lambda d: [([some(d, 3, 4), to], {}) for to in (torch.uint8, torch.int16, torch.float32, torch.int64) if d != torch.bool],
    "prims.conj.default": lambda d: [([some(d, 3, 4)], {})] if d.is_complex else [],
}

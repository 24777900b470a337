"""Calls for make_vectors.py of torchvision's ops of regions: boxes beyond the image, of no size, turned around, of one pixel;
adaptive numbers of samples; scores that are equal or NaN. By name: element type -> calls; PyTorch says which types it takes."""
import torch
import torchvision  # noqa: F401  (its ops)

from more_calls import floats_only, some


def boxes(d):
    """Rows of (image, left, top, right, bottom) for two images of 12 x 9 pixels at a scale of 0.5."""
    return torch.tensor([[0, 2, 2, 14, 20], [1, -6, -4, 8, 9], [1, 0, 0, 18, 24], [0, 5, 5, 5, 5], [0, 12, 10, 4, 2],
                         [1, 30, 40, 60, 80], [0, 3.3, 1.7, 9.1, 22.4]], dtype=d)


def settings():
    return [(0.5, 3, 2, 2, True), (0.5, 3, 2, 2, False), (0.25, 2, 3, -1, True), (1.0, 1, 4, 0, False), (0.5, 7, 7, 1, True)]


def aligned(d):
    calls = [([some(d, 2, 3, 12, 9), boxes(d), *setting], {}) for setting in settings()]
    return calls + [([some(d, 2, 3, 12, 9), boxes(d)[:0], *settings()[0]], {})]


def aligned_backward(d):
    calls = []
    for scale, high, wide, ratio, is_aligned in settings():
        rois = boxes(d)
        calls.append(([some(d, len(rois), 3, high, wide, low=0, high=1), rois, scale, high, wide, 2, 3, 12, 9, ratio, is_aligned], {}))
    return calls


def kept(d):
    corners = some(d, 20, 2, low=0, high=20)
    rows = torch.cat([corners, corners + some(d, 20, 2, low=4, high=9)], 1)
    scores = some(d, 20, low=0, high=1)
    equal = scores.clone()
    equal[5:12] = 0.5
    calls = [([rows, s, threshold], {}) for s in (scores, equal) for threshold in (0.0, 0.3, 0.7)]
    return calls + [([rows[:0], scores[:0], 0.5], {}), ([torch.cat([rows, rows]), torch.cat([scores, scores]), 1.0], {})]


CALLS = {
    "torchvision.nms.default": floats_only(kept),
    "torchvision.roi_align.default": floats_only(aligned),
    "torchvision._roi_align_backward.default": floats_only(aligned_backward),
}

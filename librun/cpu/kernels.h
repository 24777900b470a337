// The CPU kernels by family: each file of librun/cpu and librun/any_device returns its rows, and kernels.cc combines
// them into one table.
#pragma once

#include <span>
#include <string>

#include "libgraph/job.h"
#include "librun/kernel.h"

namespace sg::cpu {

std::span<const KernelRow> assert_kernels();              // asserts.cc: checks of the data, numbers for the host
std::span<const KernelRow> attention_kernels();           // attention_ops.cc: scaled dot product attention by its names
std::span<const KernelRow> batch_norm_kernels();          // batch_norm.cc: batch and instance norm
std::span<const KernelRow> column_kernels();              // columns.cc: im2col, col2im, pixel_shuffle
std::span<const KernelRow> convolution_kernels();         // convolution.cc: forward and backward, also transposed
std::span<const KernelRow> ctc_loss_kernels();            // ctc_loss.cc
std::span<const KernelRow> decomposition_kernels();       // decompositions.cc: Cholesky, LU, QR, determinants, inverses
std::span<const KernelRow> distance_kernels();            // distances.cc: cdist, pdist, weight norm
std::span<const KernelRow> factory_kernels();             // factory.cc: empty, zeros, full, arange, ...
std::span<const KernelRow> flex_attention_kernels();      // flex_attention.cc
std::span<const KernelRow> fourier_kernels();             // fourier.cc
std::span<const KernelRow> grid_sampler_kernels();        // grid_sampler.cc
std::span<const KernelRow> group_norm_kernels();          // group_norm.cc
std::span<const KernelRow> grouped_mm_kernels();          // grouped_mm.cc
std::span<const KernelRow> histogram_kernels();           // histogram.cc: histc, bincount
std::span<const KernelRow> index_kernels();               // index.cc: index, index_put, index_select, embedding, ...
std::span<const KernelRow> join_kernels();                // join.cc: cat, stack, split copies, buckets of collectives
std::span<const KernelRow> layer_norm_kernels();          // layer_norm.cc: layer and RMS norm
std::span<const KernelRow> linear_system_kernels();       // linear_systems.cc: solving with matrices and their factors
std::span<const KernelRow> margin_loss_kernels();         // margin_losses.cc
std::span<const KernelRow> matmul_kernels();              // matmul.cc: mm, addmm, bmm, linear, ...
std::span<const KernelRow> cross_entropy_kernels();       // cross_entropy.cc: sg.cross_entropy and its backward
std::span<const KernelRow> cross_entropy_loss_kernels();  // cross_entropy_loss.cc
std::span<const KernelRow> nll_loss_kernels();            // nll_loss.cc
std::span<const KernelRow> pair_loss_kernels();           // pair_losses.cc: elementwise losses; glu, prelu
std::span<const KernelRow> pointwise_kernels();           // pointwise_rules.cc
std::span<const KernelRow> pool_kernels();                // pool.cc: maxima and averages of windows, also adaptive
std::span<const KernelRow> random_kernels();              // random_ops.cc
std::span<const KernelRow> shaped_random_kernels();       // random_shapes.cc
std::span<const KernelRow> rearrange_kernels();           // rearrange.cc: tril, repeat, roll, flip, pad, ...
std::span<const KernelRow> reduce_extreme_kernels();      // reduce_extreme.cc: amax, max, argmax, ...
std::span<const KernelRow> reduce_moments_kernels();      // reduce_moments.cc: var, std, norm, logsumexp
std::span<const KernelRow> reduce_sum_kernels();          // reduce_sum.cc: sum, mean, prod, any, all
std::span<const KernelRow> region_kernels();              // regions.cc: boxes of images
std::span<const KernelRow> scaled_mm_kernels();           // scaled_mm.cc: products of float8
std::span<const KernelRow> scan_kernels();                // scan.cc: cumsum, cumprod, cummax, ...
std::span<const KernelRow> scatter_kernels();             // scatter.cc: gather, scatter, scatter_add, ...
std::span<const KernelRow> search_kernels();              // search.cc: nonzero, unique, searchsorted, ...
std::span<const KernelRow> segment_kernels();             // segment_reduce.cc
std::span<const KernelRow> softmax_kernels();             // softmax.cc
std::span<const KernelRow> sort_kernels();                // sort.cc: sort, topk, median
std::span<const KernelRow> spectral_kernels();            // spectral.cc: eigenvalues, singular values, exponentials
std::span<const KernelRow> upsample_kernels();            // upsample.cc: interpolation, reflection and replication pads
std::span<const KernelRow> view_copy_kernels();           // view_copies.cc: reshape, copies and gradients of views

// A kernel that other kernels fall back on.
Status constant_pad(KernelCall& call);  // rearrange.cc: pads "self" by "pad" with "value"

// Why a FlexAttention node cannot run, as far as its nested graphs show before a run; empty = no reason known.
std::string flex_attention_refusal(const Program& program, const Graph& graph, NodeId n);

}  // namespace sg::cpu

// Norms over channels (batch, group, instance) and the index arithmetic of convolutions. Tensors are [batch, channels,
// ...].
#pragma once

#include "librun/cuda/kernels/reduce.h"

namespace sg::cuda {

// Rows of elements that are processed together: row r begins at r * start_step and has `outer` runs of `run` elements,
// `outer_step` apart, as row-major indices of the tensor.
struct ChannelRows {
  int64_t rows = 0, outer = 1, outer_step = 0, run = 0, start_step = 0;
  SG_FN int64_t count() const { return outer * run; }
  SG_FN int64_t element(int64_t row, int64_t k) const { return row * start_step + k / run * outer_step + k % run; }
};

struct ChannelArgs {
  ChannelRows rows;
  View from, gradient, to, weight, bias;    // missing ones have no data
  double *mean = nullptr, *rstd = nullptr;  // by row
  double* spread = nullptr;                 // by row: the variance
  double* sums = nullptr;                   // two per row: of the gradient, and of it times (from - center)
  const double *of_gradient = nullptr, *of_normal = nullptr;  // backward, by row; null = statistics were given
  int64_t channels = 0, inner = 1, groups = 0;                // groups 0: a row is a channel of all entries
  double eps = 0;

  SG_FN int64_t channel_of(int64_t i) const { return i / inner % channels; }
  SG_FN int64_t row_of(int64_t i) const {
    if (groups == 0) return channel_of(i);
    return i / (inner * channels) * groups + channel_of(i) / (channels / groups);
  }
};

// Mean and variance of each row, and 1 / sqrt(variance + eps).
SG_KERNEL(channel_statistics, ChannelArgs) {
  for (int64_t row = block.index(); row < args.rows.rows; row += block.count()) {
    auto value = [&](int64_t k) { return read<double>(args.from, offset_of(args.from, args.rows.element(row, k))); };
    const int64_t n = args.rows.count();
    auto part = block.each([&](int lane) {
      double acc = 0;
      for (int64_t k = lane; k < n; k += kLanes) acc += value(k);
      return acc;
    });
    const double mean = block.reduce(part, Sum()) / static_cast<double>(n);
    auto squares = block.each([&](int lane) {
      double acc = 0;
      for (int64_t k = lane; k < n; k += kLanes) acc += (value(k) - mean) * (value(k) - mean);
      return acc;
    });
    const double spread = block.reduce(squares, Sum()) / static_cast<double>(n);
    block.each([&](int lane) {
      if (lane != 0) return;
      args.mean[row] = mean;
      args.rstd[row] = 1 / ::sqrt(spread + args.eps);
      if (args.spread) args.spread[row] = spread;
    });
  }
}

SG_FN double channel_number(const View& v, int64_t channel, double otherwise) {
  return v.data ? read<double>(v, offset_of(v, channel)) : otherwise;
}

SG_KERNEL(channel_normalize, ChannelArgs) {
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes) {
      const int64_t row = args.row_of(i), channel = args.channel_of(i);
      const double x = read<double>(args.from, offset_of(args.from, i));
      write<double>(args.to, offset_of(args.to, i),
                    (x - args.mean[row]) * args.rstd[row] * channel_number(args.weight, channel, 1) +
                        channel_number(args.bias, channel, 0));
    }
  });
}

// Two sums per row: of the gradient, and of the gradient times (from - the row's mean, if there are statistics).
SG_KERNEL(channel_gradient_sums, ChannelArgs) {
  for (int64_t row = block.index(); row < args.rows.rows; row += block.count()) {
    const double center = args.mean ? args.mean[row] : 0;
    auto part = block.each([&](int lane) {
      TwoSums acc{0, 0};
      for (int64_t k = lane; k < args.rows.count(); k += kLanes) {
        const int64_t i = args.rows.element(row, k);
        const double g = read<double>(args.gradient, offset_of(args.gradient, i));
        acc = {acc.a + g, acc.b + g * (read<double>(args.from, offset_of(args.from, i)) - center)};
      }
      return acc;
    });
    const TwoSums sums = block.reduce(part, AddTwo());
    block.each([&](int lane) {
      if (lane == 0) args.sums[2 * row] = sums.a, args.sums[2 * row + 1] = sums.b;
    });
  }
}

SG_KERNEL(channel_normalize_backward, ChannelArgs) {
  const double n = static_cast<double>(args.rows.count());
  block.each([&](int lane) {
    for (int64_t i = block.index() * kLanes + lane; i < args.to.count; i += block.count() * kLanes) {
      const int64_t row = args.row_of(i);
      const double g =
          read<double>(args.gradient, offset_of(args.gradient, i)) * channel_number(args.weight, args.channel_of(i), 1);
      double y = g;
      if (args.of_gradient) {
        const double x = (read<double>(args.from, offset_of(args.from, i)) - args.mean[row]) * args.rstd[row];
        y = g - args.of_gradient[row] / n - x * args.of_normal[row] / n;
      }
      write<double>(args.to, offset_of(args.to, i), y * args.rstd[row]);
    }
  });
}

// --- by row or channel: coefficients derived from sums ---

struct ChannelFinish {
  const double *sums = nullptr, *mean = nullptr, *rstd = nullptr;
  View weight;
  double *of_gradient = nullptr, *of_normal = nullptr;  // by row of the statistics
  View to_weight, to_bias;                              // by channel
  int64_t batch = 1, channels = 0, groups = 0;          // groups 0: sums are by channel, already centered
};

SG_KERNEL(channel_finish_rows, ChannelFinish) {
  block.each([&](int lane) {
    const int64_t rows = args.groups == 0 ? args.channels : args.batch * args.groups;
    const int64_t each = args.groups == 0 ? 1 : args.channels / args.groups;
    for (int64_t row = block.index() * kLanes + lane; row < rows; row += block.count() * kLanes) {
      double of_gradient = 0, of_normal = 0;
      for (int64_t c = 0; c < each; ++c) {
        const int64_t at = row * each + c;
        const double w = channel_number(args.weight, at % args.channels, 1),
                     center = args.groups == 0 ? 0 : args.mean[row];
        of_gradient += w * args.sums[2 * at];
        of_normal += w * (args.sums[2 * at + 1] - center * args.sums[2 * at]) * args.rstd[row];
      }
      args.of_gradient[row] = of_gradient;
      args.of_normal[row] = of_normal;
    }
  });
}

SG_KERNEL(channel_finish_parameters, ChannelFinish) {
  block.each([&](int lane) {
    for (int64_t c = block.index() * kLanes + lane; c < args.channels; c += block.count() * kLanes) {
      double weight = 0, bias = 0;
      for (int64_t n = 0; n < (args.groups == 0 ? 1 : args.batch); ++n) {
        const int64_t at = n * args.channels + c;
        const int64_t row = args.groups == 0 ? c : n * args.groups + c / (args.channels / args.groups);
        const double center = args.groups == 0 ? 0 : args.mean[row];
        weight += (args.sums[2 * at + 1] - center * args.sums[2 * at]) * args.rstd[row];
        bias += args.sums[2 * at];
      }
      if (args.to_weight.data) write<double>(args.to_weight, offset_of(args.to_weight, c), weight);
      if (args.to_bias.data) write<double>(args.to_bias, offset_of(args.to_bias, c), bias);
    }
  });
}

// Running statistics follow those of the batch: kept += momentum * (factor * now - kept).
struct RunningArgs {
  View kept;
  const double* now = nullptr;
  double momentum = 0, factor = 1;
  int64_t batch = 1;  // rows of `now` for each element, which are averaged
};

SG_KERNEL(update_running, RunningArgs) {
  block.each([&](int lane) {
    for (int64_t c = block.index() * kLanes + lane; c < args.kept.count; c += block.count() * kLanes) {
      double now = 0;
      for (int64_t n = 0; n < args.batch; ++n)
        now += args.now[n * args.kept.count + c] / static_cast<double>(args.batch);
      const int64_t at = offset_of(args.kept, c);
      const double kept = read<double>(args.kept, at);
      write<double>(args.kept, at, kept + args.momentum * (now * args.factor - kept));
    }
  });
}

// 1 / sqrt(variance + eps) of given statistics.
struct GivenArgs {
  View mean, variance;
  double *to_mean = nullptr, *to_rstd = nullptr;
  double eps = 0;
};

SG_KERNEL(given_statistics, GivenArgs) {
  block.each([&](int lane) {
    for (int64_t c = block.index() * kLanes + lane; c < args.mean.count; c += block.count() * kLanes) {
      args.to_mean[c] = read<double>(args.mean, offset_of(args.mean, c));
      args.to_rstd[c] = 1 / ::sqrt(read<double>(args.variance, offset_of(args.variance, c)) + args.eps);
    }
  });
}

// --- convolutions: windows as rows, [entries * places, channels of the group * window] ---

struct ConvolutionArgs {
  View image;                         // [batch, channels, in...]: read, or written by conv_gather
  View rows;                          // of one group, contiguous
  View bias;                          // conv_gather: by channel
  int64_t entry = 0, entries = 0;     // in the batch
  int64_t channel = 0, channels = 0;  // of the group
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, window[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};

  SG_FN int64_t places() const { return out[0] * out[1] * out[2]; }
  SG_FN int64_t window_size() const { return window[0] * window[1] * window[2]; }
  SG_FN int64_t image_offset(int64_t n, int64_t c, const int64_t* at) const {
    int64_t offset = (entry + n) * image.stride[0] + (channel + c) * image.stride[1];
    for (int k = 3 - (image.axes - 2); k < 3; ++k) offset += at[k] * image.stride[image.axes - 3 + k];
    return offset;
  }
};

SG_KERNEL(conv_rows, ConvolutionArgs) {
  block.each([&](int lane) {
    const int64_t window = args.window_size(), depth = args.channels * window, places = args.places();
    for (int64_t i = block.index() * kLanes + lane; i < args.rows.count; i += block.count() * kLanes) {
      const int64_t row = i / depth, c = i % depth / window;
      int64_t place = row % places, at = i % window, where[3];
      bool inside = true;
      for (int k = 2; k >= 0; --k) {
        where[k] = place % args.out[k] * args.stride[k] - args.padding[k] + at % args.window[k] * args.dilation[k];
        inside = inside && where[k] >= 0 && where[k] < args.in[k];
        place /= args.out[k];
        at /= args.window[k];
      }
      if (inside) copy_element(args.rows, i, args.image, args.image_offset(row / places, c, where));
      else write_whole(args.rows, i, 0);
    }
  });
}

// The inverse: each element of the image sums its entries in the rows, in the order of window and place.
SG_KERNEL(conv_gather, ConvolutionArgs) {
  block.each([&](int lane) {
    const int64_t window = args.window_size(), depth = args.channels * window, places = args.places();
    const int64_t plane = args.in[0] * args.in[1] * args.in[2], all = args.entries * args.channels * plane;
    for (int64_t i = block.index() * kLanes + lane; i < all; i += block.count() * kLanes) {
      const int64_t n = i / plane / args.channels, c = i / plane % args.channels;
      int64_t rest = i % plane, at[3];
      for (int k = 2; k >= 0; --k) at[k] = rest % args.in[k], rest /= args.in[k];
      double sum = 0;
      for (int64_t w = 0; w < window; ++w) {
        int64_t left = w, place = 0, step = 1;
        bool inside = true;
        for (int k = 2; k >= 0; --k) {
          const int64_t from = at[k] + args.padding[k] - left % args.window[k] * args.dilation[k];
          left /= args.window[k];
          inside = inside && from >= 0 && from % args.stride[k] == 0 && from / args.stride[k] < args.out[k];
          place += from / args.stride[k] * step;
          step *= args.out[k];
        }
        if (inside) sum += read<double>(args.rows, (n * places + place) * depth + c * window + w);
      }
      if (args.bias.data) sum += read<double>(args.bias, (args.channel + c) * args.bias.stride[0]);
      write<double>(args.image, args.image_offset(n, c, at), sum);
    }
  });
}

}  // namespace sg::cuda

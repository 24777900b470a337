// Recurrent layers, unrolled step by step. The sequence length has to be known.
#include <algorithm>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

enum class Cell { tanh, relu, gru, lstm };

// The weights of one layer in one direction; biases and projection may be absent.
struct Weights {
  ValueId input, hidden, input_bias, hidden_bias, projection;
};

struct State {
  ValueId hidden, cell;
};

ValueId linear(CompositeCall& c, ValueId x, ValueId weight, ValueId bias) {
  return bias.is_none() ? c.make("linear", {x, weight}) : c.make("linear", {x, weight, bias});
}

Values quarters(CompositeCall& c, ValueId gates, int parts) {
  Expr width = c.exprs().floordiv(c.extent(gates, -1), c.exprs().constant(parts));
  return c.make_all("split.Tensor", {gates, c.as_arg(width), -1}, static_cast<size_t>(parts));
}

State lstm_step(CompositeCall& c, ValueId from_input, const State& s, const Weights& w) {
  Values gates = quarters(c, c.make("add.Tensor", {linear(c, s.hidden, w.hidden, w.hidden_bias), from_input}), 4);
  ValueId in = c.make("sigmoid", {gates[0]}), forget = c.make("sigmoid", {gates[1]});
  ValueId fresh = c.make("tanh", {gates[2]}), out = c.make("sigmoid", {gates[3]});
  ValueId cell = c.make("add.Tensor", {c.make("mul.Tensor", {forget, s.cell}), c.make("mul.Tensor", {in, fresh})});
  ValueId hidden = c.make("mul.Tensor", {out, c.make("tanh", {cell})});
  return {w.projection.is_none() ? hidden : c.make("matmul", {hidden, c.make("t", {w.projection})}), cell};
}

State gru_step(CompositeCall& c, ValueId from_input, const State& s, const Weights& w) {
  Values x = quarters(c, from_input, 3), h = quarters(c, linear(c, s.hidden, w.hidden, w.hidden_bias), 3);
  ValueId reset = c.make("sigmoid", {c.make("add.Tensor", {h[0], x[0]})}),
          keep = c.make("sigmoid", {c.make("add.Tensor", {h[1], x[1]})});
  ValueId fresh = c.make("tanh", {c.make("add.Tensor", {x[2], c.make("mul.Tensor", {h[2], reset})})});
  return {c.make("add.Tensor", {c.make("mul.Tensor", {c.make("sub.Tensor", {s.hidden, fresh}), keep}), fresh}),
          ValueId()};
}

State step(CompositeCall& c, Cell kind, ValueId from_input, const State& s, const Weights& w) {
  if (kind == Cell::lstm) return lstm_step(c, from_input, s, w);
  if (kind == Cell::gru) return gru_step(c, from_input, s, w);
  ValueId sum = c.make("add.Tensor", {linear(c, s.hidden, w.hidden, w.hidden_bias), from_input});
  return {c.make(kind == Cell::tanh ? "tanh" : "relu", {sum}), ValueId()};
}

// One layer in one direction over x [length, batch, width]; leaves its final state in `state`.
ValueId run_layer(CompositeCall& c, Cell kind, ValueId x, int64_t length, bool backwards, const Weights& w,
                  State* state) {
  Values inputs = c.make_all("unbind.int", {linear(c, x, w.input, w.input_bias), 0}, static_cast<size_t>(length));
  if (backwards) std::reverse(inputs.begin(), inputs.end());
  Values outputs;
  for (ValueId from_input : inputs) {
    *state = step(c, kind, from_input, *state, w);
    outputs.push_back(state->hidden);
    if (c.failed()) return x;
  }
  if (backwards) std::reverse(outputs.begin(), outputs.end());
  return c.make("stack", {outputs, 0});
}

std::optional<std::vector<Weights>> weights_of(CompositeCall& c, size_t count, Cell kind) {
  Values params = c.tensors("params");
  bool biases = c.flag("has_biases");
  size_t plain = biases ? 4 : 2, each = count == 0 ? 0 : params.size() / count;
  if (count == 0 || params.size() % count != 0 || (each != plain && !(kind == Cell::lstm && each == plain + 1)))
    return std::nullopt;
  std::vector<Weights> out;
  for (size_t i = 0; i < params.size(); i += each) {
    Weights w{params[i], params[i + 1], {}, {}, {}};
    if (biases) w.input_bias = params[i + 2], w.hidden_bias = params[i + 3];
    if (each > plain) w.projection = params[i + each - 1];
    out.push_back(w);
  }
  return out;
}

void layers(CompositeCall& c, Cell kind) {
  ValueId x = c.tensor("input");
  int64_t count = c.integer("num_layers"), directions = c.flag("bidirectional") ? 2 : 1;
  if (c.failed() || count < 1 || count > 1024) return c.fail("has no number of layers that can be taken apart");
  auto weights = weights_of(c, static_cast<size_t>(count * directions), kind);
  if (!weights || c.rank(x) != 3) return c.fail("needs an input of three dimensions, and the weights of its layers");
  Values start = c.arg("hx").is(ArgKind::list) ? c.tensors("hx") : Values{c.tensor("hx")};
  if (start.size() != (kind == Cell::lstm ? 2 : 1)) return c.fail("needs one state, of an LSTM two");
  bool batch_first = c.flag("batch_first");
  if (batch_first) x = c.make("transpose.int", {x, 0, 1});
  int64_t length = c.known_size(x, 0);
  if (c.failed() || length < 1) return c.fail("needs a sequence of at least one step");
  Values last_hidden, last_cell;
  for (int64_t layer = 0; layer < count && !c.failed(); ++layer) {
    Values outputs;
    for (int64_t d = 0; d < directions; ++d) {
      int64_t at = layer * directions + d;
      State state{c.make("select.int", {start[0], 0, at}),
                  kind == Cell::lstm ? c.make("select.int", {start[1], 0, at}) : ValueId()};
      outputs.push_back(run_layer(c, kind, x, length, d == 1, (*weights)[static_cast<size_t>(at)], &state));
      last_hidden.push_back(state.hidden);
      last_cell.push_back(state.cell);
    }
    x = directions == 1 ? outputs[0] : c.make("cat", {outputs, 2});
    if (c.flag("train") && c.number("dropout") != 0 && layer + 1 < count)
      x = c.make("dropout", {x, c.number("dropout"), true});
  }
  c.give(batch_first ? c.make("transpose.int", {x, 0, 1}) : x);
  c.give(c.make("stack", {last_hidden, 0}));
  if (kind == Cell::lstm) c.give(c.make("stack", {last_cell, 0}));
}

void cell(CompositeCall& c, Cell kind) {
  Weights w{c.tensor("w_ih"), c.tensor("w_hh"), c.tensor("b_ih"), c.tensor("b_hh"), {}};
  Values start = c.arg("hx").is(ArgKind::list) ? c.tensors("hx") : Values{c.tensor("hx")};
  if (start.size() != (kind == Cell::lstm ? 2 : 1)) return c.fail("needs one state, of an LSTM two");
  State state = step(c, kind, linear(c, c.tensor("input"), w.input, w.input_bias), {start[0], start.back()}, w);
  c.give(state.hidden);
  if (kind == Cell::lstm) c.give(state.cell);
}

}  // namespace

void lstm(CompositeCall& c) { layers(c, Cell::lstm); }
void gru(CompositeCall& c) { layers(c, Cell::gru); }
void rnn_tanh(CompositeCall& c) { layers(c, Cell::tanh); }
void rnn_relu(CompositeCall& c) { layers(c, Cell::relu); }
void lstm_cell(CompositeCall& c) { cell(c, Cell::lstm); }
void gru_cell(CompositeCall& c) { cell(c, Cell::gru); }
void rnn_tanh_cell(CompositeCall& c) { cell(c, Cell::tanh); }
void rnn_relu_cell(CompositeCall& c) { cell(c, Cell::relu); }

}  // namespace sg::composite

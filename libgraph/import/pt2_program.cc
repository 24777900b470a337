// ExportedProgram: its version, symbols, guards, graph and signature.
#include <algorithm>

#include "libgraph/expr/guard_text.h"
#include "libgraph/import/pt2_read.h"
#include "libgraph/import/source_build.h"
#include "libgraph/import/sympy_expr.h"

namespace sg {
namespace {

constexpr int64_t kMajor = 8;
// PyTorch writes "no bound" as null, the largest integer, or one below it.
constexpr int64_t kUnbounded = INT64_MAX - 2;
constexpr size_t kMaxGuardText = 1 << 14;

}  // namespace

Status Pt2Reader::read(Program* program) {
  SG_TRY(check_version());
  SG_TRY(read_ranges());
  SG_TRY(need_field(root(), "graph_module", [&](const Json& module) {
    return need_field(module, "graph", [&](const Json& graph) {
      return need_field(module, "signature", [&](const Json& signature) -> Status {
        Scope scope;
        SG_TRY(open_scope(graph, &scope));
        SG_TRY(read_root_ports(graph, signature, &scope, &program_.graph));
        return read_nodes(graph, &scope, &program_.graph, 0);
      });
    });
  }));
  tell_phases(&program_.graph);
  set_hints();
  set_sources();
  SG_TRY(read_guards());
  keep_specs();
  program_.computed = computed_.list();
  program_.where = [this](SourcePlace place) { return where(place); };
  return build_program(program_, context_->job, &context_->tally, program);
}

Location Pt2Reader::where(SourcePlace place) const {
  static constexpr std::string_view kParts[] = {"inputs", "nodes", "outputs"};
  constexpr uint32_t kCount = static_cast<uint32_t>(Part::count);
  Location out{text_.name()};
  out.path =
      paths_[place.a / kCount] + "." + std::string(kParts[place.a % kCount]) + "[" + std::to_string(place.b) + "]";
  return out;
}

Status Pt2Reader::check_version() {
  if (!root().is_object()) return root().error("this is not an exported program: not an object");
  return need_field(root(), "schema_version", [&](const Json& version) -> Status {
    SG_TRY(with_field(version, "minor", [&](const Json& json) -> Status {
      SG_ASSIGN(int64_t minor, json.integer());
      tells_offsets_ = minor >= kOffsetsMinor;
      return ok_status();
    }));
    return need_field(version, "major", [&](const Json& json) -> Status {
      SG_ASSIGN(int64_t major, json.integer());
      std::string number = std::to_string(major);
      if (major > kMajor)
        return json.error("the program has schema " + number + ", newer than " + std::to_string(kMajor) +
                          ", the newest that this version reads");
      if (major < kMajor)
        return json.error("the program has schema " + number + ", older than " + std::to_string(kMajor) +
                              ", the oldest that this version reads",
                          "export it again with torch 2.6 or newer");
      return ok_status();
    });
  });
}

// {"s0": {min_val, max_val}}; a range of an expression becomes a guard.
Status Pt2Reader::read_ranges() {
  return with_field(root(), "range_constraints", [&](const Json& ranges) {
    return for_each_field_once(ranges, [&](std::string_view text, const Json& json) { return read_range(text, json); });
  });
}

Status Pt2Reader::read_range(std::string_view text, const Json& json) {
  std::optional<int64_t> bounds[2];
  for (int i = 0; i < 2; ++i)
    SG_TRY(with_field(json, i == 0 ? "min_val" : "max_val", [&](const Json& value) -> Status {
      if (value.element.type() == simdjson::dom::element_type::UINT64) return ok_status();  // beyond all sizes
      SG_ASSIGN(int64_t number, value.integer());
      if (number < kUnbounded && number > -kUnbounded) bounds[i] = number;
      return ok_status();
    }));
  auto parsed = parse_sympy(&pool(), text);
  if (!parsed.ok()) parsed = parse_computed(text, std::move(parsed));
  if (!parsed.ok()) return json.error("`" + std::string(text.substr(0, 200)) + "`: " + parsed.error().message);
  auto name = pool().exprs.as_symbol(*parsed);
  if (!name) {
    if (bounds[0]) program_.guards.push_back({Relation::ge, *parsed, context_->constant(*bounds[0]), SourceId()});
    if (bounds[1]) program_.guards.push_back({Relation::le, *parsed, context_->constant(*bounds[1]), SourceId()});
    return ok_status();
  }
  for (const Symbol& s : program_.symbols)
    if (s.name == *name) return json.error("the symbol `" + std::string(text.substr(0, 100)) + "` is declared twice");
  if (bounds[0] && bounds[1] && *bounds[0] > *bounds[1])
    return json.error("the symbol's range [" + std::to_string(*bounds[0]) + ", " + std::to_string(*bounds[1]) +
                      "] is empty");
  Symbol symbol;
  symbol.name = *name;
  symbol.kind = pool().strings[*name].starts_with('s') ? SymbolKind::input : SymbolKind::data;
  symbol.min = bounds[0];
  symbol.max = bounds[1];
  symbol.source = StrId();
  program_.symbols.push_back(symbol);
  return ok_status();
}

void Pt2Reader::set_hints() {
  for (Symbol& symbol : program_.symbols)
    if (auto it = hints_.find(symbol.name); it != hints_.end()) symbol.hint = it->second;
}

// A symbol's source is the first input with a dimension of that size.
void Pt2Reader::set_sources() {
  for (const SourceInput& input : program_.graph.inputs) {
    const std::vector<Expr>& shape = pool().types[input.type].shape;
    for (size_t d = 0; d < shape.size(); ++d) {
      auto name = pool().exprs.as_symbol(shape[d]);
      if (!name) continue;
      for (Symbol& symbol : program_.symbols)
        if (symbol.name == *name && symbol.kind == SymbolKind::input && !symbol.source)
          symbol.source = str(pool().strings.str(input.name) + ".size()[" + std::to_string(d) + "]");
    }
  }
}

// Python conditions on the arguments: "L['x'].size()[0] <= 64". Those that symbols cannot express are kept as they are.
Status Pt2Reader::read_guards() {
  std::string left;
  SG_TRY(with_field(root(), "guards_code", [&](const Json& list) {
    return for_each_item(list, [&](size_t, const Json& item) -> Status {
      SG_ASSIGN(std::string_view text, item.string());
      if (!read_guard(text)) left += (left.empty() ? "[" : ",") + canonical_json(item.element);
      return ok_status();
    });
  }));
  if (!left.empty()) context_->job_extras.add("guards_code", left + "]");
  return ok_status();
}

bool Pt2Reader::read_guard(std::string_view text) {
  if (text.size() > kMaxGuardText) return false;
  std::string sizes = with_sizes(text);
  if (sizes.empty()) return false;
  auto guards = parse_guards(pool(), sizes);
  if (!guards.ok()) return false;
  for (const Guard& guard : *guards) {
    ExprPool& exprs = pool().exprs;
    if (exprs.is_invalid(guard.left) || exprs.is_invalid(guard.right)) return false;
    auto a = exprs.constant_value(guard.left), b = exprs.constant_value(guard.right);
    bool says_nothing =
        (a && b && holds(guard.relation, *a, *b)) || (guard.left == guard.right && holds(guard.relation, 0, 0));
    if (!says_nothing) program_.guards.push_back(guard);
  }
  return true;
}

// The guard with expressions for the sizes of inputs; empty if it refers to anything else.
std::string Pt2Reader::with_sizes(std::string_view guard) const {
  std::string out;
  for (size_t at = 0; at < guard.size();) {
    if (!guard.substr(at).starts_with("L['")) {
      out += guard[at++];
      continue;
    }
    size_t close = guard.find("']", at);
    if (close == std::string_view::npos) return {};
    std::string_view name = guard.substr(at + 3, close - at - 3);
    at = close + 2;
    const Type* type = nullptr;
    for (const SourceInput& input : program_.graph.inputs)
      if (input.input.kind == InputKind::user && context_->job.pool->strings[input.name] == name)
        type = &context_->job.pool->types[input.type];
    if (type == nullptr) return {};
    Expr value = type->value;
    constexpr std::string_view kSize = ".size()[";
    if (guard.substr(at, kSize.size()) == kSize) {
      at += kSize.size();
      size_t axis = 0;
      size_t end = guard.find(']', at);
      if (end == std::string_view::npos || end == at || end - at > 3) return {};
      for (char c : guard.substr(at, end - at)) {
        if (c < '0' || c > '9') return {};
        axis = axis * 10 + static_cast<size_t>(c - '0');
      }
      at = end + 1;
      if (axis >= type->shape.size()) return {};
      value = type->shape[axis];
    }
    if (!value) return {};
    out += "(" + context_->job.pool->exprs.print(value) + ")";
  }
  return out;
}

// Keeps, in PyTorch's form, how inputs and outputs are packed into Python structures.
void Pt2Reader::keep_specs() {
  element calls, signature;
  if (root().element["graph_module"]["module_call_graph"].get(calls) || !calls.is_array()) return;
  simdjson::dom::array list = calls.get_array().value_unsafe();
  if (list.size() == 0 || list.at(0)["signature"].get(signature) || !signature.is_object()) return;
  for (const char* key : {"in_spec", "out_spec"}) {
    std::string_view text;
    if (!signature[key].get(text)) context_->job_extras.add(key, canonical_json(signature[key].value_unsafe()));
  }
}

}  // namespace sg

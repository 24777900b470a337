// One rank's program: symbols, guards, nested graphs, and the main graph.
#include "libgraph/expr/guard_text.h"
#include "libgraph/import/capture_read.h"

namespace sg {
namespace {

class ProgramReader {
 public:
  ProgramReader(ImportContext* context, const RankCapture& capture, Program* program)
      : context_(context), capture_(capture), program_(program) {}

  Status read() {
    const Json root = capture_.root();
    SG_TRY(with_field(root, "symbols", [&](const Json& list) {
      return for_each_item(list, [&](size_t, const Json& item) { return read_symbol(item); });
    }));
    SG_TRY(with_field(root, "guards", [&](const Json& list) {
      return for_each_item(list, [&](size_t, const Json& item) { return read_guard(item); });
    }));
    SG_TRY(with_field(root, "graphs", [&](const Json& dict) { return name_nested(dict); }));
    uint32_t streams = 0;
    SG_TRY(read_graph(context_, capture_, nested_, root, &streams, program_, &program_->graph));
    return with_field(root, "graphs", [&](const Json& dict) -> Status {
      size_t i = 0;
      return for_each_field(dict, [&](std::string_view, const Json& json) {
        return read_graph(context_, capture_, nested_, json, &streams, program_, &program_->nested[i++]->graph);
      });
    });
  }

 private:
  Status read_symbol(const Json& json) {
    Symbol symbol;
    symbol.source = StrId();
    SG_TRY(for_each_field_once(json, [&](std::string_view key, const Json& value) -> Status {
      if (value.is_null()) return ok_status();
      if (key == "name" || key == "source") {
        SG_ASSIGN(std::string_view text, value.string());
        (key == "name" ? symbol.name : symbol.source) = context_->str(text);
      } else if (key == "kind") {
        SG_ASSIGN(std::string_view kind, value.string());
        if (kind != "input" && kind != "data")
          return value.error("unknown symbol kind `" + std::string(kind) + "`", "the kinds are input and data");
        symbol.kind = kind == "data" ? SymbolKind::data : SymbolKind::input;
      } else if (key == "min" || key == "max" || key == "hint") {
        SG_ASSIGN(int64_t number, value.integer());
        (key == "min" ? symbol.min : key == "max" ? symbol.max : symbol.hint) = number;
      } else {
        keep_unknown("symbols", key, value);
      }
      return ok_status();
    }));
    if (!symbol.name || symbol.name == StringTable::kEmpty) return json.error("the symbol has no `name`");
    if (symbol.min && symbol.max && *symbol.min > *symbol.max)
      return json.error("the symbol's range [" + std::to_string(*symbol.min) + ", " + std::to_string(*symbol.max) +
                        "] is empty");
    if (program_->find_symbol(symbol.name))
      return json.error("the symbol `" + context_->pool().strings.str(symbol.name) + "` is declared twice");
    program_->symbols.push_back(symbol);
    return ok_status();
  }

  Status read_guard(const Json& json) {
    SourceId source;
    std::vector<Guard> guards;
    bool has_expr = false;
    SG_TRY(for_each_field_once(json, [&](std::string_view key, const Json& value) -> Status {
      if (value.is_null()) return ok_status();
      if (key == "expr") {
        SG_ASSIGN(std::string_view text, value.string());
        auto parsed = parse_guards(context_->pool(), text);
        if (!parsed.ok()) return value.error("`" + std::string(text.substr(0, 200)) + "`: " + parsed.error().message);
        guards = std::move(parsed).value();
        has_expr = true;
      } else if (key == "source" && value.is_object()) {
        SG_ASSIGN(Source line, read_source(context_, value, print_place(value.place), &context_->job_extras));
        source = context_->pool().sources.intern(line);
      } else {
        keep_unknown("guards", key, value);
      }
      return ok_status();
    }));
    if (!has_expr) return json.error("the guard has no `expr`");
    for (Guard& guard : guards) {
      guard.source = source;
      for (Expr side : {guard.left, guard.right}) declare_symbols_of(side);
      program_->guards.push_back(guard);
    }
    return ok_status();
  }

  // Captures may have guards on undeclared symbols, which an equal one has replaced everywhere else. PyTorch names
  // sizes of inputs s0, ..., and values unknown at capture u0, ...
  void declare_symbols_of(Expr e) {
    std::vector<StrId> found;
    context_->pool().exprs.collect_symbols(e, &found);
    for (StrId name : found) {
      if (program_->find_symbol(name)) continue;
      Symbol symbol;
      symbol.name = name;
      symbol.kind = context_->pool().strings[name].starts_with('s') ? SymbolKind::input : SymbolKind::data;
      symbol.source = StrId();
      program_->symbols.push_back(symbol);
    }
  }

  Status name_nested(const Json& dict) {
    return for_each_field(dict, [&](std::string_view name, const Json& json) -> Status {
      if (name.empty()) return json.error("the nested graph's name is empty");
      if (!nested_.try_emplace(name, NestedId(static_cast<uint32_t>(program_->nested.size()))).second)
        return json.error("the nested graph `" + std::string(name) + "` occurs twice");
      program_->nested.push_back(std::make_unique<Nested>(Nested{context_->str(name), Graph(&context_->pool())}));
      return ok_status();
    });
  }

  // Unknown keys of symbols and guards are kept with the job, as they have no free keys of their own.
  void keep_unknown(std::string_view owner, std::string_view key, const Json& value) {
    context_->tally.unknown_key(owner, key, value);
    context_->job_extras.add(print_place(value.place), canonical_json(value.element));
  }

  ImportContext* context_;
  const RankCapture& capture_;
  Program* program_;
  NestedIndex nested_;
};

}  // namespace

Status read_program(ImportContext* context, const RankCapture& capture, Program* program) {
  return ProgramReader(context, capture, program).read();
}

}  // namespace sg

#include "libgraph/export/export_python.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "libgraph/base/joined.h"
#include "libgraph/data/constant_data.h"
#include "libgraph/export/python_runtime.h"
#include "libgraph/export/python_writer.h"
#include "libgraph/facts/alias.h"
#include "libgraph/facts/port_names.h"
#include "libgraph/facts/tangent.h"
#include "libgraph/names.h"

namespace sg {

namespace python {
namespace {

// Names of one program's functions.
struct Written {
  std::string run;      // the run function; for torch.fx its builder
  std::string strides;  // empty = none
  std::string table;    // the variable of its row in the table
};

void claim_words(std::string_view words, Scope* scope) {
  while (!words.empty()) {
    size_t length = std::min(words.find(' '), words.size());
    scope->claim(words.substr(0, length));
    words.remove_prefix(std::min(length + 1, words.size()));
  }
}

std::string name_of_ranks(const std::vector<uint32_t>& ranks) {
  std::string out = ranks.size() == 1 ? "RANK" : "RANKS";
  for (uint32_t r : ranks) out += "_" + std::to_string(r);
  constexpr size_t kLongest = 40;
  return out.size() <= kLongest ? out : "RANKS_FROM_" + std::to_string(ranks[0]);
}

std::string in_small_letters(std::string s) {
  for (char& c : s)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return s;
}

class Exporter {
 public:
  Exporter(const Job& job, const PythonExport& options)
      : job_(job), module_{job, options.fx, Scope(), {}, {}, {}, {}, false} {}

  Result<std::string> run() {
    SG_TRY(claim_names());
    for (const auto& p : job_.programs) SG_TRY(program(*p));
    SG_TRY(check_groups());
    std::string out = head();
    return out + groups() + helpers() + functions_ + tables() + std::string(kProgramOf.substr(1)) +
           std::string(module_.fx ? kGraphStep : kStep) + "\n" + std::string(kMain);
  }

 private:
  Status claim_names();
  Status program(const Program& program);
  Status bodies(const Program& program, const SymbolPlan& symbols, std::vector<std::string>* names);
  Status check_groups() const;

  std::string head() const;
  std::string groups() const;
  std::string helpers() const;
  std::string tables() const;
  std::string table(const Program& program, const Written& written) const;
  std::string name_of_program(const Program& program) const;
  std::string input_label(const Graph& graph, ValueId v) const;
  std::optional<std::string> said_by_tensor(const Graph& graph, const Type& number) const;
  std::string held_constant(const Input& input, const Type& type) const;
  std::string_view text(StrId id) const { return job_.pool->strings[id]; }

  const Job& job_;
  Module module_;
  std::string functions_;
  std::vector<Written> written_;  // by program
};

// Claims the names of the module itself before any function takes one: runtime helpers, and op namespaces in sorted
// order.
Status Exporter::claim_names() {
  claim_words(kRuntimeNames, &module_.scope);
  std::set<std::string, std::less<>> spaces;
  auto note = [&](std::string_view op) {
    QualifiedOp parts;
    if (split_op_name(op, &parts)) spaces.emplace(parts.space);
  };
  job_.for_each_graph([&](const Graph& graph) {
    for (NodeId n : graph.nodes()) {
      note(graph.op_name(n));
      for (const Arg& top : graph.node(n).args)
        top.walk([&](const Arg& arg) {
          if (arg.is(ArgKind::op)) note(text(arg.as_text()));
        });
    }
  });
  for (const std::string& space : spaces) module_.space_names[space] = module_.scope.claim(space);
  return ok_status();
}

std::string Exporter::name_of_program(const Program& program) const {
  if (program.ranks.empty() || job_.world == 1) return {};
  return "_" + name_of_ranks(program.ranks);
}

// The nested graphs that flex attention ops take: they return a single result bare and several as a list.
std::unordered_set<NestedId, IdHash> flex_bodies(const Program& program) {
  std::unordered_set<NestedId, IdHash> out;
  auto look = [&](const Graph& graph) {
    for (NodeId n : graph.nodes()) {
      if (!graph.op_name(n).starts_with("higher_order.flex_attention")) continue;
      for (const Arg& top : graph.node(n).args)
        top.walk([&](const Arg& arg) {
          if (arg.is(ArgKind::graph)) out.insert(arg.as_graph());
        });
    }
  };
  look(program.graph);
  for (const auto& nested : program.nested) look(nested->graph);
  return out;
}

Status Exporter::bodies(const Program& program, const SymbolPlan& symbols, std::vector<std::string>* names) {
  std::string prefix = module_.fx ? "build_" : "", suffix = in_small_letters(name_of_program(program));
  for (const auto& nested : program.nested)
    names->push_back(module_.scope.claim(prefix + std::string(text(nested->name)) + suffix));
  auto flex = flex_bodies(program);
  for (uint32_t i = 0; i < program.nested.size(); ++i) {
    GraphWriter writer(&module_, program, symbols, *names);
    std::string doc = "The nested graph ";
    append_docstring(text(program.nested[i]->name), &doc);
    functions_ += "\n\n";
    SG_TRY(writer.write(program.nested[i]->graph, symbols.nested(NestedId(i)),
                        {(*names)[i], doc + ".", flex.contains(NestedId(i))}, &functions_));
  }
  return ok_status();
}

Status Exporter::program(const Program& program) {
  SymbolPlan symbols(program, !module_.fx);
  if (symbols.is_too_deep())
    return Error{ErrorKind::cannot_apply, "nested graphs call each other deeper than Python can", {}, {}};
  const GraphSymbols& main = symbols.main();
  if (!main.parameters.empty()) {
    Location where;
    where.path = place_of(program, program.graph, main.needed_at[0]);
    std::string name(text(main.parameters[0]));
    return Error{ErrorKind::cannot_apply, "the size " + name + " follows from no input and no node before this one",
                 std::move(where), "give it a number first: sg-concretize --bind " + name + "=N"};
  }
  std::vector<std::string> names;
  SG_TRY(bodies(program, symbols, &names));
  GraphWriter writer(&module_, program, symbols, names);
  Written written;
  std::string suffix = name_of_program(program), small = in_small_letters(suffix);
  written.run = module_.scope.claim((module_.fx ? "build" : "run") + small);
  written.table = module_.scope.claim("PROGRAM" + suffix);
  std::string doc = suffix.empty() ? (job_.world == 1 ? "The step" : "The step of every rank") : "The step of";
  for (char c : small) doc += c == '_' ? ' ' : c;
  doc += ": " + std::to_string(program.graph.node_count()) + " nodes.";
  functions_ += "\n\n";
  SG_TRY(writer.write(program.graph, main, {written.run, doc, false}, &functions_));
  std::string strides = module_.scope.claim("strides" + small), code = writer.strides_function(strides);
  if (!code.empty()) functions_ += "\n\n" + code, written.strides = strides;
  written_.push_back(std::move(written));
  return ok_status();
}

// torch.distributed sorts the ranks of a group that it creates, so unsorted ones are refused.
Status Exporter::check_groups() const {
  for (uint32_t id : module_.groups) {
    for (const GroupPart& part : job_.groups[id].parts) {
      if (std::is_sorted(part.ranks.begin(), part.ranks.end())) continue;
      std::string name;
      append_comment(group_key(job_, GroupId(id)), &name);
      return Error{ErrorKind::cannot_apply,
                   "group @" + name + " has its ranks in an order of its own, which torch.distributed does not keep",
                   {},
                   {}};
    }
  }
  return ok_status();
}

std::string Exporter::head() const {
  std::string out = "#!/usr/bin/env python3\n\"\"\"";
  if (job_.title && job_.title != StringTable::kEmpty) append_docstring(text(job_.title), &out);
  else out += "A training step";
  out += ".\n\nWritten by sg-export";
  for (size_t i = 0; i < job_.provenance.size(); ++i) {
    out += i ? ", " : " from a graph of ";
    append_docstring(text(job_.provenance[i].tool), &out);
  }
  out +=
      ". One call per node, in the order of the schedule.\n`step(inputs)` runs it; as a program it loads a file, runs, "
      "and compares.\n";
  if (!module_.groups.empty())
    out += "It talks between " + std::to_string(job_.world) + " ranks: start it with torchrun.\n";
  if (module_.draws_random)
    out += "It draws random numbers from PyTorch's own generator: not those that a capture or sg-run drew.\n";
  out += "\"\"\"\n" + std::string(kImports);
  if (!module_.groups.empty()) out += "import torch.distributed as dist\n";
  if (module_.fx) out.replace(out.find("import os\n"), 0, "import operator\n"), out += "import torch.fx as fx\n";
  out += '\n';
  for (const auto& [space, variable] : module_.spaces) out += variable + " = torch.ops." + space + "\n";
  return out + "\n";
}

std::string Exporter::groups() const {
  std::string out = "WORLD = " + std::to_string(job_.world) + "\n";
  if (module_.groups.empty()) return out + "GROUPS = GROUP = {}  # no node talks to another rank\n";
  out += "GROUPS = {  # the ranks of each process group\n";
  for (uint32_t id : module_.groups) {
    std::string row = string_literal(group_key(job_, GroupId(id))) + ": [";
    bool is_first = true;
    for (const GroupPart& part : job_.groups[id].parts) {
      if (!is_first) row += ',', row += kBreak;
      is_first = false, row += "[" + joined(part.ranks, ", ") + "]";
    }
    append_line(4, row + "],", {}, &out);
  }
  return out + "}\nGROUP = {}  # what torch.distributed calls the group of this rank\n";
}

std::string Exporter::helpers() const {
  std::string out;
  if (module_.fx) out += "\n" + std::string(kBuilderClass);
  if (!module_.groups.empty()) out += "\n" + std::string(kGroups);
  for (std::string_view source : module_.helpers)
    out += (source.starts_with("\nimport") ? "" : "\n") + std::string(source);
  return out;
}

std::string Exporter::input_label(const Graph& graph, ValueId v) const {
  const bool is_input = graph.value(v).def.is_none();
  return std::string(is_input ? port_name(graph, graph.inputs()[graph.value(v).index]) : graph.name(v));
}

// The tensor input and axis that a size taken as a number also appears in: `("x", 0)`.
std::optional<std::string> Exporter::said_by_tensor(const Graph& graph, const Type& number) const {
  if (number.kind != TypeKind::integer || !number.has_value || !job_.pool->exprs.as_symbol(number.value)) return {};
  for (const Input& input : graph.inputs()) {
    const auto& shape = graph.type(input.value).shape;
    auto axis = std::ranges::find(shape, number.value);
    if (axis == shape.end()) continue;
    return "(" + string_literal(graph.name(input.value)) + ", " + std::to_string(axis - shape.begin()) + ")";
  }
  return {};
}

// A constant stored in the graph: `("0000803f", torch.float32, (1,))`. Its sizes are numbers.
std::string Exporter::held_constant(const Input& input, const Type& type) const {
  std::string shape;
  for (Expr size : type.shape) shape += job_.pool->exprs.print(size) + ", ";
  if (type.shape.size() != 1 && !shape.empty()) shape.resize(shape.size() - 2);
  if (type.shape.size() == 1) shape.pop_back();
  return "(" + string_literal(*held_digits(text(input.digest))) + ", torch." +
         std::string(torch_dtype_name(type.dtype)) + ", (" + shape + "))";
}

std::string Exporter::table(const Program& program, const Written& written) const {
  const Graph& graph = program.graph;
  std::string out = "\n\n" + written.table + " = Program(\n    run=" + written.run + ",\n    inputs={\n";
  std::string optional, numbers, writes, constants, held, devices, ones, sizes, outputs;
  auto add = [&](std::string item, std::string* list) {
    *list += (list->empty() ? "" : std::string(",") + kBreak) + item;
  };
  AliasAnalysis aliases(program, graph);
  std::unordered_set<uint32_t> mutated;
  for (NodeId n : graph.nodes())
    for (StorageId s : aliases.writes(n))
      if (aliases.storage(s).is_input()) mutated.insert(aliases.storage(s).owner.index);
  for (const Input& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    std::string name = string_literal(graph.name(input.value));
    append_line(8, name + ": " + (input.fqn ? string_literal(text(input.fqn)) : "None") + ",", {}, &out);
    if (graph.users(input.value).empty()) add(name, &optional);
    if (type.kind == TypeKind::integer || type.kind == TypeKind::floating || type.kind == TypeKind::boolean)
      add(name, &numbers);
    if (auto said = said_by_tensor(graph, type)) add(name + ": " + *said, &sizes);
    if (mutated.contains(input.value.index)) add(name, &writes);
    if (is_tangent_of_loss(graph, input)) add(name + ": torch." + std::string(torch_dtype_name(type.dtype)), &ones);
    if (input.digest && held_digits(text(input.digest))) add(name + ": " + held_constant(input, type), &held);
    else if (input.digest) add(name + ": " + string_literal(text(input.digest)), &constants);
    if (type.kind == TypeKind::tensor && type.device && text(type.device) != "cpu")
      add(name + ": " + string_literal(text(type.device)), &devices);
  }
  for (const Output& o : graph.outputs()) {
    std::string label(o.kind == OutputKind::gradient ? "gradient" : name_of(o.kind));
    if (o.of) label += ":" + input_label(graph, o.of);
    else if (o.of_name) label += ":" + std::string(text(o.of_name));
    add(o.value ? string_literal(label) : "None", &outputs);
  }
  out += "    },\n";
  append_line(4, "outputs=(" + outputs + (graph.outputs().empty() ? ")," : ",),"), {}, &out);
  auto row = [&](std::string_view name, const std::string& list, std::string_view open, std::string_view close) {
    if (!list.empty())
      append_line(4, std::string(name) + "=" + std::string(open) + list + std::string(close), {}, &out);
  };
  row("optional", optional, "(", ",),"), row("numbers", numbers, "(", ",),"), row("written", writes, "(", ",),");
  row("constants", constants, "{", "},"), row("held", held, "{", "},"), row("devices", devices, "{", "},"),
      row("ones", ones, "{", "},");
  row("sizes", sizes, "{", "},");
  row("strides", written.strides, "", ",");
  return out + ")\n";
}

std::string Exporter::tables() const {
  std::string out = "\n" + std::string(kProgramClass), rows;
  std::map<uint32_t, std::string> of_rank;
  for (size_t i = 0; i < job_.programs.size(); ++i) {
    const Program& p = *job_.programs[i];
    out += table(p, written_[i]);
    for (uint32_t r : p.ranks) of_rank[r] = written_[i].table;
  }
  if (job_.is_spmd()) return out + "PROGRAMS = dict.fromkeys(range(WORLD), " + written_[0].table + ")\n\n\n";
  for (const auto& [rank, name] : of_rank)
    rows += (rows.empty() ? "" : std::string(",") + kBreak) + std::to_string(rank) + ": " + name;
  append_line(0, "PROGRAMS = {" + rows + "}", {}, &out);
  return out + "\n\n";
}

}  // namespace
}  // namespace python

Result<std::string> export_python(const Job& job, const PythonExport& options) {
  return python::Exporter(job, options).run();
}

}  // namespace sg

// The YAML form of a machine, read with yaml-cpp; the only file of libgraph that includes it.
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <set>

#include "libgraph/base/diag.h"
#include "libgraph/base/nearest.h"
#include "libgraph/base/yaml_quotes.h"
#include "libgraph/sim/machine.h"
#include "libgraph/sim/machine_file.h"
#include "libgraph/sim/yaml_document.h"

namespace sg {
namespace {

constexpr size_t kMaxDepth = 8, kMostBases = 8;
constexpr size_t kMostEntries = 1000;  // including those that aliases repeat

class Reader {
 public:
  Reader(std::string_view file, std::string_view text, size_t above, Diagnostics* problems)
      : file_(file), text_(text), above_(above), problems_(problems) {}

  Machine read(const YAML::Node& root) {
    if (!root.IsMap()) {
      error(root, "a machine is a map of names and numbers", "");
      return {};
    }
    Machine machine = base_of(root);
    walk(root, "", 0, &machine);
    if (machine.name.empty() && !lost_base_) error(root, "`name` is missing", "");
    if (!has_base_ && !problems_->has_errors()) report_missing(root);  // a misspelt `base` is told already
    return machine;
  }

 private:
  void error(const YAML::Node& at, const std::string& message, const std::string& hint) {
    YAML::Mark mark = at.Mark();
    Location where{file_, static_cast<uint32_t>(mark.line + 1), static_cast<uint32_t>(mark.column + 1), {}, {}};
    problems_->error("machine", message, std::move(where), hint);
  }

  // A file's base is relative to the file's folder.
  std::string beside(const std::string& name) const {
    const size_t slash = file_.rfind('/');
    return !is_machine_file(name) || name[0] == '/' || slash == std::string::npos ? name
                                                                                  : file_.substr(0, slash + 1) + name;
  }

  Machine base_of(const YAML::Node& root) {
    YAML::Node base = root["base"];
    if (!base.IsDefined()) return {};
    has_base_ = true;
    Result<Machine> found = Error{ErrorKind::unreadable, "`base` is the name of a machine", {}, {}};
    if (above_ == kMostBases)
      found = Error{ErrorKind::unreadable, "more than eight machines, each the base of the next", {}, {}};
    else if (base.IsScalar()) found = find_machine(beside(base.Scalar()), above_ + 1);
    if (!found.ok()) {
      const Location& where = found.error().where;
      const bool is_elsewhere = !where.file.empty() && where.file != file_;
      error(base, (is_elsewhere ? print_location(where) + ": " : "") + found.error().message, found.error().hint);
      lost_base_ = true;
      return {};
    }
    found->name.clear();
    return std::move(*found);
  }

  void walk(const YAML::Node& map, const std::string& prefix, size_t depth, Machine* machine) {
    for (const auto& entry : map) {
      if (entries_ == kMostEntries) return;
      if (++entries_ == kMostEntries) return error(entry.first, "a machine has no more than 1,000 entries", "");
      if (!entry.first.IsScalar()) {
        error(entry.first, "a key is a word", "");
        continue;
      }
      for (const YAML::Node& node : {entry.first, entry.second})
        if (node.IsScalar() && has_open_quotes(text_, static_cast<size_t>(node.Mark().pos)))
          error(node, std::string(kOpenQuotes), "");
      std::string path = prefix + entry.first.Scalar();
      if (entry.second.IsMap() && depth < kMaxDepth) {
        walk(entry.second, path + ".", depth + 1, machine);
      } else if (!entry.second.IsScalar()) {
        error(entry.second, "`" + path + "` is neither a number nor a map", "");
      } else {
        set(entry.first, path, entry.second, machine);
      }
    }
  }

  void set(const YAML::Node& at, const std::string& path, const YAML::Node& value, Machine* machine) {
    if (!given_.insert(path).second) return error(at, "`" + path + "` is given twice", "");
    if (path == "base") return;
    if (path == "name") return void(machine->name = value.Scalar());
    if (path == "about") return void(machine->about = value.Scalar());
    for (const MachineKey& key : machine_keys()) {
      if (key.path != path) continue;
      double number = 0;
      if (!YAML::convert<double>::decode(value, number) || !std::isfinite(number) || number < 0)
        return error(value, "`" + path + "` must be a number, 0 or more", "");
      if (std::string why = key.refusal(number); !why.empty()) return error(value, why, "");
      key.field(*machine) = number;
      return;
    }
    Nearest nearest(path);
    for (const std::string_view word : {"base", "name", "about"}) nearest.offer(word);
    for (const MachineKey& key : machine_keys()) nearest.offer(key.path);
    error(at, "a machine has no `" + path + "`", nearest.hint());
  }

  void report_missing(const YAML::Node& root) {
    std::string first;
    size_t count = 0;
    for (const MachineKey& key : machine_keys()) {
      if (key.may_be_left_out || given_.contains(std::string(key.path))) continue;
      if (count++ == 0) first = key.path;
    }
    if (count == 0) return;
    const std::string more = count == 1 ? " is" : " and " + std::to_string(count - 1) + " more are";
    error(root, "`" + first + "`" + more + " missing", "give all keys, or `base: h100-8`");
  }

  std::string file_;
  std::string_view text_;
  size_t above_;  // machines that have this one as a base
  Diagnostics* problems_;
  std::set<std::string> given_;
  size_t entries_ = 0;
  bool has_base_ = false, lost_base_ = false;
};

// The first mistake, and behind its remedy where the others are.
Error as_one(const Diagnostics& problems) {
  const Diagnostic& first = problems.list().front();
  Error out{ErrorKind::unreadable, first.message, first.where, first.hint};
  std::string others;
  for (size_t i = 1; i < problems.list().size(); ++i) {
    const Diagnostic& d = problems.list()[i];
    others += (others.empty() ? "" : "; ") + std::to_string(d.where.line) + ":" + std::to_string(d.where.column) +
              ": " + d.message;
  }
  if (!others.empty()) out.hint += (out.hint.empty() ? "also " : "; also ") + others;
  return out;
}

}  // namespace

Result<Machine> parse_machine(std::string_view text, const std::string& file, size_t above) {
  Diagnostics problems;
  try {
    Machine machine = Reader(file, text, above, &problems).read(only_document(std::string(text)));
    if (!problems.has_errors()) return machine;
  } catch (const YAML::Exception& e) {  // how the library reports that a text is not YAML
    Location where{file, static_cast<uint32_t>(e.mark.line + 1), static_cast<uint32_t>(e.mark.column + 1), {}, {}};
    return Error{ErrorKind::unreadable, "not valid YAML: " + e.msg, std::move(where),
                 yaml_hint(std::string(text), static_cast<size_t>(std::max(e.mark.line, 0)))};
  }
  return as_one(problems);
}

}  // namespace sg

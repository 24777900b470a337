#include "tools/run/run_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "librun/check/watch.h"
#include "librun/comm/comm_inject.h"
#include "librun/values/data_name.h"
#include "librun/values/initialize.h"
#include "librun/values/run_state.h"
#include "tools/cli/cli_targets.h"
#include "tools/run/run_backend.h"

namespace sg::cli {
namespace {

constexpr Option kOptions[] = {
    {"inputs", 'i', "FILE", "inputs by name or FQN; {r} stands for the rank, {step} for the step", {}, true},
    {"state", 0, "FILE", "go on from what another run left (--dump-state), and from its step; goes before --inputs"},
    {"spare-inputs", 0, {}, "ignore tensors of --inputs that the graph has no input for (after sg-reduce)"},
    {"data", 0, "FILE", "file or folder with the larger constants, found by digest (default: the graph's folder)"},
    {"init", 0, "seed:N", "make up inputs that no file gives; an FQN gets the same values wherever it is used alike"},
    {"bind",
     0,
     "SYMBOL=N",
     "size of the inputs that --init makes: a symbol s0=16, or a dimension INPUT[DIM]=16",
     {},
     true},
    {"seed", 0, "N", "seed of the random ops", "0"},
    {"outputs",
     0,
     "FILE",
     "write the outputs of the last step, or of each step if the name has {step}",
     {},
     false,
     true},
    {"expect", 0, "FILE", "compare the outputs with these; exit 1 if one is beyond its tolerance"},
    {"rtol", 0, "R", "relative tolerance (default: by the narrowest float type on the way to the output)"},
    {"atol", 0, "A", "absolute tolerance (default: likewise)"},
    {"bitwise", 0, {}, "require bitwise equality"},
    {"compare", 0, "GRAPH", "also run this graph on the same inputs and name the first node that differs"},
    {"plan", 0, {}, "print the memory plan and run nothing"},
    {"allocator", 0, "exact|cuda-caching", "with --plan: report the memory of such an allocator, overall and by phase"},
    {"memory-limit", 0, "SIZE", "refuse steps that need more than this per rank, inputs not counted: 512MiB, 2GiB"},
    {"steps", 'n', "N", "run this many steps", "1"},
    {"optimizer", 0, "KIND:KEY=VALUE,...",
     "update the parameters after each step: sgd:lr=0.1 or adamw:lr=1e-3,betas=0.9:0.95"},
    {"numerics", 0, "fast|strict|f64", "strict: same bits on every machine; f64: also run in double precision", "fast"},
    {"threads", 't', "N", "threads of all ranks together, at least one per rank; 0 = all cores", "0"},
    {"comm", 0, "local|mpi|nccl", "ranks are threads, processes (mpirun, torchrun), or GPUs", "local"},
    {"rendezvous",
     0,
     "HOST:PORT|FILE",
     "with --comm nccl: where processes find rank 0 (default: as torchrun or Slurm says)",
     {},
     false,
     true},
    {"backend", 0, "cpu|cuda", "where nodes are computed", "cpu"},
    {"deterministic", 0, {}, "with --comm nccl: add in rank order, for the same bits as the other communicators"},
    {"timeout", 0, "N", "end the run when a rank makes no progress for N seconds; 0 = never", "600"},
    {"watch", 0, "nan|inf,...", "stop at the first node that produces one"},
    {"dump-inputs",
     0,
     "FILE",
     "write the inputs of the first step, read or made up, as --inputs reads them",
     {},
     false,
     true},
    {"dump-state",
     0,
     "FILE",
     "write what the last step leaves to a further one (--state): parameters, buffers, moments",
     {},
     false,
     true},
    {"dump-nodes", 0, "FILE", "write the results of the nodes that --nodes names", {}, false, true},
    {"nodes", 0, "NODE|PATTERN", "results by name (* is any text) or by a pattern of modules: layers.*.mlp", "*", true},
    {"profile", 0, "FILE", "write a timeline of the nodes for Perfetto", {}, false, true},
    {"link", 0, "LAT,BW", "slow collectives down to such a link, one per group: 50us,2GiB/s"},
    {"chaos", 0, "N", "find missing waits: delay collectives (seed N) and spoil their results until the wait"},
};

Numerics numerics_of(const std::string& word) {
  return word == "strict" ? Numerics::strict : word == "f64" ? Numerics::f64 : Numerics::fast;
}

// None if the option is not given.
Result<std::optional<double>> number_option(const Args& args, std::string_view name) {
  if (!args.has(name)) return std::optional<double>();
  std::string text = args.text(name);
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number >= 0) || !std::isfinite(number))
    return option_error(name, " takes a number that is not negative, not `" + text + "`");
  return std::optional<double>(number);
}

// --data, or the folder of the graph; none for a pipe.
Result<std::string> constants_place(const Args& args) {
  if (args.has("data")) {
    const std::string first = data_file_name(args.text("data"), 0, 0);
    std::error_code problem;
    if (!std::filesystem::exists(first, problem))
      return Error{ErrorKind::unreadable, "--data: no such file or folder", {first}, {}};
    return args.text("data");
  }
  if (args.input() == "-") return std::string();
  const std::filesystem::path folder = std::filesystem::path(args.input()).parent_path();
  return folder.empty() ? std::string(".") : folder.string();
}

Status files_options(const Args& args, SessionOptions* options) {
  options->inputs = args.all("inputs");
  options->state = args.text("state");
  options->spare_inputs = args.has("spare-inputs");
  SG_ASSIGN(options->constants, constants_place(args));
  options->outputs = args.text("outputs");
  options->expect = args.text("expect");
  options->dump_inputs = args.text("dump-inputs");
  options->dump_state = args.text("dump-state");
  options->dump = args.text("dump-nodes");
  options->dump_names = args.has("nodes") ? args.all("nodes") : std::vector<std::string>{"*"};
  options->profile = args.has("profile");
  options->explain = args.has("explain");
  if (args.has("nodes") && !args.has("dump-nodes")) return option_error("nodes", " needs --dump-nodes");
  return ok_status();
}

Status check_files(const Args& args) {
  for (const Option& option : kOptions)
    for (const std::string& value : args.all(option.name))
      if (value.empty() && option.argument.find("FILE") != option.argument.npos)
        return option_error(option.name, " is empty", "leave it out, or name a file");
  return ok_status();
}

Status numbers_options(const Args& args, SessionOptions* options) {
  options->tolerance.bitwise = args.has("bitwise");
  SG_ASSIGN(options->tolerance.rtol, number_option(args, "rtol"));
  SG_ASSIGN(options->tolerance.atol, number_option(args, "atol"));
  if (options->tolerance.bitwise && (options->tolerance.rtol || options->tolerance.atol))
    return option_error("bitwise", " leaves no tolerance: --rtol and --atol do not go with it");
  for (const char* option : {"rtol", "atol", "bitwise"})
    if (args.has(option) && !args.has("expect") && !args.has("compare"))
      return option_error(option, " needs --expect or --compare");
  options->watch = args.text("watch");
  if (args.has("watch")) SG_TRY(parse_watch(options->watch));
  if (args.has("init")) {
    SG_ASSIGN(options->init_seed, parse_init(args.text("init")));
  }
  SG_ASSIGN(options->bindings, size_bindings(args));
  if (args.has("optimizer")) {
    SG_ASSIGN(options->optimizer, parse_optimizer(args.text("optimizer")));
  }
  return ok_status();
}

// Reports each line once: ranks report from their own threads, often with the same words.
std::function<void(const std::string&)> said_once(const Args& args) {
  struct Said {
    std::mutex lock;
    std::set<std::string> lines;
  };
  return [&args, said = std::make_shared<Said>()](const std::string& line) {
    std::lock_guard guard(said->lock);
    if (said->lines.insert(line).second) args.report().note(line);
  };
}

Status check_they_are_there(const Args& args) {
  for (const char* option : {"inputs", "state", "expect"})
    for (const std::string& file : args.all(option)) {
      const bool is_one = file != "-" && file.find("{r}") == file.npos && file.find("{step}") == file.npos;
      std::error_code problem;
      if (is_one && !std::filesystem::exists(file, problem) && !problem)
        return Error{ErrorKind::unreadable, "no such file", {file}, {}};
    }
  return ok_status();
}

}  // namespace

std::span<const Option> run_options() { return kOptions; }

Result<std::vector<SizeBinding>> size_bindings(const Args& args) {
  std::vector<SizeBinding> out;
  for (const std::string& text : args.all("bind")) {
    SG_ASSIGN(SizeBinding binding, parse_binding(text));
    out.push_back(std::move(binding));
  }
  return out;
}

Result<uint64_t> first_step(const Args& args, uint32_t rank) {
  if (!args.has("state")) return uint64_t{0};
  SG_ASSIGN(const LeftState left, LeftState::open(data_file_name(args.text("state"), rank, 0)));
  return left.step();
}

Result<SessionOptions> session_options(const Args& args, uint32_t ranks) {
  SessionOptions options;
  SG_TRY(files_options(args, &options));
  SG_TRY(check_files(args));
  SG_TRY(numbers_options(args, &options));
  options.steps = static_cast<uint64_t>(args.number("steps", 1));
  if (options.steps == 0) return option_error("steps", " takes 1 or more");
  if (args.has("dry-run"))
    options.steps = 0, options.profile = false,
    options.outputs = options.dump_inputs = options.dump_state = options.dump = "";
  options.timeout_s = static_cast<double>(args.number("timeout", 600));
  options.rank.guards_flight = args.has("chaos");
  for (const char* option : {"link", "chaos"})
    if (args.has(option)) options.injected += std::string(", ") + option + " " + args.text(option);
  options.rank.numerics = numerics_of(args.text("numerics"));
  options.rank.seed = args.natural("seed", 0);
  int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  // More than a few threads per core only wait for each other; results do not depend on the number.
  int64_t threads = std::min(args.number("threads", 0), 8 * cores);
  options.rank.threads = static_cast<int>(std::max<int64_t>(1, (threads > 0 ? threads : cores) / std::max(ranks, 1u)));
  if (args.has("memory-limit")) {
    SG_ASSIGN(options.rank.memory_limit, args.bytes("memory-limit"));
  }
  options.say = said_once(args);
  options.inputs_known = [&args] { return check_targets_again(args); };
  options.last_words = [&args](const Error& error) { args.report().error(error), args.report().finish(); };
  return options;
}

Status check_run_options(const Args& args) {
  SG_TRY(check_backend(args));
  SG_TRY(session_options(args, 1));
  if (args.has("link")) SG_TRY(parse_link(args.text("link")));
  if (args.has("allocator") && !args.has("plan"))
    return option_error("allocator", " needs --plan", "sg-stat has it too");
  if (args.has("compare") && args.text("compare") == "-" && args.input() == "-")
    return Error{
        ErrorKind::usage, "standard input is named twice, and can be read once", {}, "give one graph as a file"};
  if (args.has("compare") && args.text("comm") != "local")
    return Error{ErrorKind::usage, "--compare runs both graphs in this process: it needs --comm local"};
  for (const char* option : {"expect", "compare", "outputs", "profile", "dump-inputs", "dump-state", "dump-nodes"})
    if (args.has("plan") && args.has(option))
      return Error{ErrorKind::usage, std::string("--plan runs nothing: --") + option + " does not go with it"};
  return check_they_are_there(args);
}

Result<std::vector<std::string_view>> check_run_words(const std::vector<std::string>& words) {
  const Tool tool = {
      .name = "sg-run", .summary = {}, .operands = {}, .details = {}, .reads_stdin = false, .options = kOptions};
  Reporter report(tool.name);
  SG_ASSIGN(const Args args, parse_options(tool, words, report));
  SG_TRY(check_targets(args));
  SG_TRY(check_run_options(args));
  std::vector<std::string_view> given;
  for (const std::span<const Option> table : {run_options(), common_options()})
    for (const Option& option : table)
      if (args.has(option.name)) given.push_back(option.name);
  return given;
}

}  // namespace sg::cli

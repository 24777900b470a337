// The commands of `stepgraph`: each is a tool `sg-NAME`, but for the last two.
#pragma once

#include <string_view>

namespace sg::cli {

inline constexpr std::string_view kCommands[] = {
    "import", "export", "clean", "remat", "offload", "chunk",  "overlap",     "bucket", "concretize",
    "pipe",   "print",  "parse", "check", "diff",    "log",    "explain",     "recipe", "reduce",
    "run",    "sim",    "stat",  "view",  "sweep",   "doctor", "completions", "help"};

constexpr bool is_part_of_front(std::string_view command) { return command == "completions" || command == "help"; }

// What `stepgraph --help` says of them.
inline constexpr std::string_view kCommandsHelp =
    "  in and out\n"
    "    import       turn captures of a training step into a graph\n"
    "    export       write a graph as a Python module of torch calls\n"
    "    print        write a graph as text\n"
    "    parse        turn text into a graph file\n"
    "  look\n"
    "    check        verify graphs\n"
    "    stat         count nodes, parameters, flops, bytes and communication\n"
    "    diff         show what changed from one graph to another\n"
    "    view         show a step as one HTML page\n"
    "    log          show how a graph was made\n"
    "    explain      show what made a node and what uses it\n"
    "  change\n"
    "    clean        remove work that cannot affect results\n"
    "    remat        recompute forward values in the backward\n"
    "    offload      keep values in host memory until the backward\n"
    "    chunk        run modules once per chunk of their rows\n"
    "    bucket       merge the gathers and reductions of each block, launched early\n"
    "    overlap      run exchanges, gathers and reductions while something else computes\n"
    "    concretize   replace symbolic sizes by numbers\n"
    "    pipe         run several passes in one process\n"
    "  run and simulate\n"
    "    run          execute a step on its ranks\n"
    "    sim          simulate a step on a machine\n"
    "    reduce       shrink a failing job to a small one that still fails\n"
    "  automate\n"
    "    recipe       check, plan and run a recipe of passes\n"
    "    sweep        score a recipe at many points: time against peak memory\n"
    "  help\n"
    "    doctor       report which parts of Stepgraph work on this machine\n"
    "    completions  print the completion script for bash, zsh or fish\n"
    "    help         print the help of a command\n\n"
    "`stepgraph print` is `sg-print`; options of a command follow its name.";

}  // namespace sg::cli

// The sources that sg-import reads: what each kind is, what it may be made of, and the function that reads it. One row
// a kind; --from, the detection by content, the messages and the help follow from it.
//
// To add one: CONTRIBUTING.md, "To add a source".
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/data/safetensors.h"
#include "libgraph/import/capture.h"
#include "libgraph/import/source_kind.h"
#include "libgraph/job.h"
#include "tools/cli/cli.h"

namespace sg::cli {

struct SourceFile {
  std::string name;   // as the user named it; "<stdin>"
  std::string bytes;  // empty for a folder
  bool is_folder = false;
  SourceKind kind = SourceKind::unknown;
  std::optional<uint32_t> rank = {};  // by its name, if that is part of a rank pattern
};

// What the operands name, standard input without any: all of one kind.
struct Sources {
  SourceKind kind = SourceKind::unknown;
  std::vector<SourceFile> files;
  std::string name;    // for messages
  std::string digest;  // of the one file, or of the files' digests a line each; a folder's reader sets it
  size_t bytes = 0;
};

// A job, and the values of weights and constants where the source holds them: they become the sibling safetensors.
struct Imported {
  Job job;
  std::vector<TensorToWrite> tensors;
  std::shared_ptr<const void> owner;  // of the tensors' bytes
};

// What --list says of a source that holds more than one graph, or more than graphs.
struct Listing {
  std::string text, json;
};

struct ImportSource {
  SourceKind kind;
  std::string_view what;    // "capture JSON, plain or gzipped"; the messages list these
  bool takes_many = false;  // several files are the ranks of one job
  bool takes_folder = false;
  std::span<const std::string_view> options = {};  // those that not every kind has: spmd, world, rank, ...
  // May take the files' bytes. What is to be said besides errors goes to `notes`.
  Result<Imported> (*import)(const Args& args, Sources* sources, Diagnostics* notes);
  // Null = say what the job is.
  Result<Listing> (*list)(const Args& args, Sources* sources, Diagnostics* notes) = nullptr;
};

// Those of FX text and traces.
ImportOptions fx_options(const Args& args);
// Refuses an option that the kind has no use for.
Result<Sources> read_sources(const Args& args);
// REQUIRES: `sources` comes from read_sources
Result<Imported> import_source(const Args& args, Sources* sources, Diagnostics* notes);
// None when the kind has no listing of its own.
Result<std::optional<Listing>> list_source(const Args& args, Sources* sources, Diagnostics* notes);

}  // namespace sg::cli

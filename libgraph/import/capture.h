// Import of capture JSON: what PyTorch recorded of one training step, one file a rank, becomes a Job.
//
// What     `"format": "step-capture"`, version 1, plain or gzipped (docs/capture-format.md has the format and where
//          each field goes). Nothing is lost: what has a place in the IR goes there, unknown keys travel as free
//          key/values.
// Ranks    One file is one rank, or with `spmd` stands for all ranks of its world. Several files are a rank set: ranks
//          whose programs are equal up to group names share one, and when all ranks are there and equal the job is
//          SPMD.
// Errors   The first malformed thing ends the import: file, JSON path, byte offset (of the JSON text, after unpacking).
// Hostile  Depth, sizes and the growth of gzip are bounded; the result is well-formed, and the verifier judges the
//          rest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/job.h"

namespace sg {

struct CaptureFile {
  std::string name;                   // as the user named it, for messages
  std::string bytes;                  // JSON or gzip
  std::optional<uint32_t> rank = {};  // by its name, if that is part of a rank pattern
};

struct ImportOptions {
  bool spmd = false;   // one capture stands for every rank of its world; groups of the others follow from the mesh
  size_t threads = 1;  // files are unpacked and parsed on several; the job is that of one
  std::optional<uint32_t> world = {};  // ranks of the job, for a source that does not say (FX text); a capture does
};

// `files` in any order: each says which rank it is. Notes and warnings (unknown keys, opaque operators, what kept ranks
// apart) go to `notes`, which may be null.
Result<Job> import_captures(std::vector<CaptureFile> files, const ImportOptions& options, Diagnostics* notes);

}  // namespace sg

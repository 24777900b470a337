#include "libgraph/edit/merge.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "libgraph/base/human.h"
#include "libgraph/diff/program_compare.h"
#include "libgraph/edit/translate.h"

namespace sg {
namespace {

Error disagree(std::string message, std::string hint) {
  return {ErrorKind::unreadable, std::move(message), {}, std::move(hint)};
}

constexpr const char* kSameJob = "the files of a rank set are parts of one job, written together";

// Maps each group of job `from` to the matching group of `to`; aliases that `to` lacks are added.
Result<std::vector<GroupId>> match_groups(const Job& from, Job* to) {
  if (from.groups.size() != to->groups.size())
    return disagree(
        plural(from.groups.size(), "group") + " here and " + std::to_string(to->groups.size()) + " in the first file",
        kSameJob);
  std::vector<GroupId> out;
  for (const Group& group : from.groups) {
    const std::string axis = from.pool->strings.str(group.axis);
    GroupId found = to->find_group(to->pool->str(axis), group.ordinal);
    const std::string name = "group " + axis + ":" + std::to_string(group.ordinal);
    if (!found) return disagree(name + " is not declared in the first file", kSameJob);
    Group& target = to->groups[found.index];
    bool same = target.priority == group.priority && target.parts.size() == group.parts.size();
    for (size_t i = 0; same && i < group.parts.size(); ++i) {
      GroupPart& part = target.parts[i];
      same = part.ranks == group.parts[i].ranks;
      for (const GroupPart::Alias& alias : group.parts[i].aliases) {
        auto at = std::lower_bound(part.aliases.begin(), part.aliases.end(), alias.rank,
                                   [](const GroupPart::Alias& a, uint32_t rank) { return a.rank < rank; });
        if (at == part.aliases.end() || at->rank != alias.rank)
          part.aliases.insert(at, {alias.rank, to->pool->str(from.pool->strings[alias.name])});
      }
    }
    if (!same) return disagree(name + " has other ranks or another priority than in the first file", kSameJob);
    out.push_back(found);
  }
  return out;
}

bool same_text(const Job& a, StrId x, const Job& b, StrId y) {
  if (!x || !y) return x == y;
  return a.pool->strings[x] == b.pool->strings[y];
}

bool same_meshes(const Job& a, const Job& b) {
  auto same_axes = [&](const Mesh& x, const Mesh& y) {
    return std::equal(x.axes.begin(), x.axes.end(), y.axes.begin(), y.axes.end(),
                      [&](StrId s, StrId t) { return same_text(a, s, b, t); });
  };
  return std::equal(a.meshes.begin(), a.meshes.end(), b.meshes.begin(), b.meshes.end(),
                    [&](const Mesh& x, const Mesh& y) {
                      return same_text(a, x.name, b, y.name) && x.shape == y.shape && same_axes(x, y);
                    });
}

bool same_history(const Job& a, const Job& b) {
  auto same_step = [&](const Provenance& x, const Provenance& y) {
    bool same = same_text(a, x.tool, b, y.tool) && same_text(a, x.version, b, y.version) &&
                same_text(a, x.input_digest, b, y.input_digest);
    return same && std::equal(x.options.begin(), x.options.end(), y.options.begin(), y.options.end(),
                              [&](const KeyValue& p, const KeyValue& q) {
                                return same_text(a, p.key, b, q.key) && same_text(a, p.json, b, q.json);
                              });
  };
  return std::equal(a.provenance.begin(), a.provenance.end(), b.provenance.begin(), b.provenance.end(), same_step);
}

std::vector<uint32_t> ranks_of(const Job& job, const Program& program) {
  if (!program.ranks.empty()) return program.ranks;
  std::vector<uint32_t> all(job.world);
  for (uint32_t r = 0; r < job.world; ++r) all[r] = r;
  return all;
}

// Translates the job's programs into `to`, each with an explicit list of its ranks.
Status take_programs(const Job& from, std::vector<GroupId> groups, std::vector<bool>* taken, Job* to,
                     ProgramSharer* sharer) {
  Translator translate(*from.pool, to->pool.get(), std::move(groups));
  for (const auto& program : from.programs) {
    Program& copy = to->add_program();
    translate.program(*program, &copy);
    copy.ranks = ranks_of(from, *program);
    for (uint32_t rank : copy.ranks) {
      if (rank >= taken->size()) return disagree("rank " + std::to_string(rank) + " lies outside the world", kSameJob);
      if ((*taken)[rank]) return disagree("rank " + std::to_string(rank) + " comes twice", "give each rank once");
      (*taken)[rank] = true;
    }
    sharer->share_last();
  }
  return ok_status();
}

Status add_ranks(const Job& from, std::vector<bool>* taken, Job* to, ProgramSharer* sharer) {
  if (from.world != to->world)
    return disagree(
        "the world has " + plural(from.world, "rank") + " here and " + std::to_string(to->world) + " in the first file",
        kSameJob);
  if (!same_meshes(*to, from)) return disagree("the meshes are not those of the first file", kSameJob);
  SG_ASSIGN(std::vector<GroupId> groups, match_groups(from, to));
  return take_programs(from, std::move(groups), taken, to, sharer);
}

}  // namespace

std::vector<uint32_t> ranks_held(const Job& job) {
  std::vector<uint32_t> out;
  for (const auto& program : job.programs) {
    std::vector<uint32_t> ranks = ranks_of(job, *program);
    out.insert(out.end(), ranks.begin(), ranks.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

Job job_of_rank(const Job& job, uint32_t rank) {
  const auto runs_on = [&](const auto& program) {
    return program->ranks.empty() || std::ranges::binary_search(program->ranks, rank);
  };
  const size_t mine = static_cast<size_t>(std::ranges::find_if(job.programs, runs_on) - job.programs.begin());
  Job out(job, std::span(&mine, 1));
  if (job.world > 1) out.programs[0]->ranks = {rank};
  return out;
}

Result<Job> merge_ranks(std::vector<Job> jobs, const std::vector<std::string>& files, Diagnostics* notes) {
  Job out(jobs[0]);
  out.programs.clear();
  std::vector<bool> taken(out.world);
  ProgramSharer sharer(&out);
  for (size_t i = 0; i < jobs.size(); ++i) {
    Status added = add_ranks(jobs[i], &taken, &out, &sharer);
    if (!added.ok()) {
      added.error().where.file = files[i];
      return added.error();
    }
    if (notes != nullptr && !same_history(out, jobs[i]))
      notes->note("this rank has another history than " + files[0] + ", whose history is kept", {files[i]});
  }
  sharer.finish(notes);
  return out;
}

void ProgramSharer::share_last() {
  const Program& last = *job_.programs.back();
  const size_t index = job_.programs.size() - 1;
  const uint64_t print = fingerprint(last);
  const auto [begin, end] = by_fingerprint_.equal_range(print);
  const auto same =
      std::find_if(begin, end, [&](const auto& e) { return !first_difference(*job_.programs[e.second], last); });
  if (same != end) {
    std::vector<uint32_t>& ranks = job_.programs[same->second]->ranks;
    ranks.insert(ranks.end(), last.ranks.begin(), last.ranks.end());
    job_.programs.pop_back();
    return;
  }
  if (index == 1)
    difference_ = "ranks " + std::to_string(job_.programs[0]->ranks[0]) + " and " + std::to_string(last.ranks[0]) +
                  " differ first in " + first_difference(*job_.programs[0], last).value();
  by_fingerprint_.emplace(print, index);
}

void ProgramSharer::finish(Diagnostics* notes) {
  std::vector<std::unique_ptr<Program>>& kept = job_.programs;
  size_t rank_count = 0;
  for (auto& program : kept) {
    std::sort(program->ranks.begin(), program->ranks.end());
    rank_count += program->ranks.size();
  }
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a->ranks < b->ranks; });
  if (kept.size() == 1 && kept[0]->ranks.size() == job_.world) kept[0]->ranks.clear();
  if (notes != nullptr && kept.size() > 1)
    notes->note(std::to_string(rank_count) + " ranks run " + std::to_string(kept.size()) +
                " programs that differ: " + difference_);
}

}  // namespace sg

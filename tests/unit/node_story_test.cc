// What sg-explain says about nodes is consistent, and agrees with the graph.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "libgraph/story/node_story.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"

namespace sg {
namespace {

const SizeValues kThirteen = [](StrId) -> std::optional<int64_t> { return 13; };

std::set<std::string> names(const std::vector<StoryValue>& list) {
  std::set<std::string> out;
  for (const StoryValue& v : list)
    if (v.op != "output") out.insert(v.name);
  return out;
}

}  // namespace

TEST_CASE("node_story: users and makers name each other, memory lasts as long as its users") {
  for (uint64_t seed = 1; seed <= 4; ++seed) {  // few nodes: each story plans the memory of all
    CAPTURE(seed);
    Job job = test::random_job(seed, {.nodes = 20});
    const Program& program = *job.programs[0];
    const Graph& graph = program.graph;
    std::map<std::string, NodeStory> stories;
    std::map<std::string, uint32_t> position;
    for (NodeId n : graph.nodes()) {
      Result<NodeStory> story = tell_node(job, program, graph.label(n), kThirteen, {});
      REQUIRE(story.ok());
      position.emplace(graph.label(n), static_cast<uint32_t>(position.size()));
      stories.emplace(graph.label(n), std::move(*story));
    }
    for (NodeId n : graph.nodes()) {
      const NodeStory& s = stories.at(std::string(graph.label(n)));
      CHECK(!s.made_by.empty());
      CHECK(story_json(s).find("\"schema\":\"sg-explain\"") != std::string::npos);
      CHECK(print_story(s).starts_with("node       %"));
      for (const std::string& user : names(s.used_by)) {
        std::set<std::string> from = names(stories.at(user).from);
        bool named = false;
        for (uint32_t r = 0; r < graph.node(n).result_count; ++r)
          named |= from.contains(std::string(graph.name(graph.node(n).result(r))));
        CHECK(named);
        bool is_single = graph.node(n).result_count == 1;  // otherwise the user may take another result
        if (is_single && s.memory && s.memory->place == "arena") CHECK(position.at(user) <= s.memory->last_position);
      }
      if (!s.memory || s.memory->place != "arena") continue;
      CHECK(s.memory->first_position <= s.memory->last_position);
      CHECK((s.memory->bytes >= 0 && s.memory->offset >= 0));
    }
  }
}

TEST_CASE("node_story: a node of several results lies in memory of its own, a view in another's") {
  Job job = test::parse(
      "sg 1.0\ngraph rank *\n  input %x : f32[4, 4]\n"
      "  %v, %i = aten.topk(%x, 4, 1) : f32[4, 4], i64[4, 4]  label topk\n"
      "  %t = aten.t(%v) : f32[4, 4] stride [1, 4]\n  %y = aten.exp(%t) : f32[4, 4]\n  output %y\n");
  Result<NodeStory> own = tell_node(job, *job.programs[0], "topk", kThirteen, {});
  REQUIRE(own.ok());
  CHECK(print_story(*own).find("in the memory of") == std::string::npos);
  for (const auto& [name, bytes] : {std::pair{"v", 64}, std::pair{"i", 128}}) {
    Result<NodeStory> result = tell_node(job, *job.programs[0], name, kThirteen, {});
    REQUIRE(result.ok());
    CHECK((result->memory && result->memory->owner == name && result->memory->bytes == bytes));
  }
  Result<NodeStory> view = tell_node(job, *job.programs[0], "t", kThirteen, {});
  REQUIRE(view.ok());
  CHECK(print_story(*view).find("in the memory of %v") != std::string::npos);
}

TEST_CASE("node_story: the loss is the value that is it, unless one is called so") {
  for (const auto& [called, told] : {std::pair{"m", "m"}, std::pair{"loss", "loss"}}) {
    const std::string name = called;
    Job job = test::parse("sg 1.0\ngraph rank *\n  input %x : f32[4]\n  %" + name +
                          " = aten.mean(%x) : f32[]\n  %e = aten.exp(%" + name + ") : f32[]\n  loss %" +
                          (name == "m" ? "m" : "e") + "\n");
    Result<NodeStory> story = tell_node(job, *job.programs[0], "loss", kThirteen, {});
    REQUIRE(story.ok());
    CHECK(story->name == told);
  }
}

TEST_CASE("node_story: an unknown name is an error with the nearest") {
  Job job = test::random_job(1);
  const Graph& graph = job.programs[0]->graph;
  std::string name = std::string(graph.label(graph.first())) + "x";
  Result<NodeStory> story = tell_node(job, *job.programs[0], name, kThirteen, {});
  REQUIRE_FALSE(story.ok());
  CHECK(story.error().kind == ErrorKind::cannot_apply);
}

}  // namespace sg

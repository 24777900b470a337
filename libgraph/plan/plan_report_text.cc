#include <cstdio>

#include "libgraph/base/human.h"
#include "libgraph/plan/plan_report.h"
#include "libgraph/story/ranks_text.h"

namespace sg {
namespace {

std::string planned_text(int64_t bytes) {
  return bytes == INT64_MAX ? "more than 4 EiB" : human_bytes(static_cast<double>(bytes));
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text + " ";
}

std::string module_and_source(const std::string& module, const std::string& source) {
  std::string out = module;
  if (!source.empty()) out += (out.empty() ? "" : ", ") + source;
  return out;
}

void print_totals(const PlanReport& r, std::string* out) {
  *out += "  inputs      " + planned_text(r.inputs_bytes) + ", of them parameters " + planned_text(r.parameters_bytes) +
          "\n";
  *out += "  planned     " + planned_text(r.peak_bytes) + ", of them outputs " + planned_text(r.output_bytes) + "\n";
  char percent[32];
  std::snprintf(percent, sizeof percent, "%.2f %%",
                r.lower_bound_bytes == 0
                    ? 0
                    : 100.0 * static_cast<double>(r.fragmentation_bytes()) / static_cast<double>(r.lower_bound_bytes));
  *out += "  at once     " + planned_text(r.lower_bound_bytes) + " live: fragmentation " +
          planned_text(r.fragmentation_bytes()) + ", " + percent + "\n";
  if (r.host_bytes > 0)
    *out += "  host        " + planned_text(r.host_bytes) + " planned, " + planned_text(r.host_bound_bytes) +
            " live at once\n";
  if (r.pooled.empty()) return;
  *out += "  pool        " + plural(r.pooled.size(), "tensor") + " of data-dependent size";
  if (r.pooled.size() > r.pool_unbounded) *out += ", at most " + planned_text(r.pool_bound_bytes) + " at once";
  if (r.pool_unbounded > 0) *out += "; " + std::to_string(r.pool_unbounded) + " without a bound";
  *out += "\n";
}

void print_owner(const PlanOwner& o, std::string* out) {
  *out += "    " + padded(planned_text(o.bytes), 9) + padded("%" + o.name, 28) + padded(o.op, 36) + padded(o.phase, 8) +
          module_and_source(o.module, o.source) + (o.until.empty() ? "  (output)" : "") + "\n";
}

void print_live(const PlanReport& r, size_t rows, std::string* out) {
  if (r.peak_node.empty()) return;
  *out += "  live at the peak, %" + r.peak_node;
  if (std::string place = module_and_source(r.peak_module, r.peak_source); !place.empty()) *out += " (" + place + ")";
  *out += "\n";
  int64_t rest = 0;
  for (size_t i = 0; i < r.live_at_peak.size(); ++i) {
    if (i < rows) print_owner(r.live_at_peak[i], out);
    else rest += r.live_at_peak[i].bytes;
  }
  if (r.call_bytes > 0) *out += "    " + padded(planned_text(r.call_bytes), 9) + "inside the body of the call\n";
  if (r.live_at_peak.size() > rows)
    *out += "    " + padded(planned_text(rest), 9) + "(" + std::to_string(r.live_at_peak.size() - rows) + " more)\n";
}

void write_owner(const PlanOwner& o, JsonWriter* json) {
  json->member("name", o.name).member("bytes", o.bytes).member("op", o.op).member("module", o.module);
  json->member("phase", o.phase).member("source", o.source).member("until", o.until);
}

void write_pool(const PlanReport& r, JsonWriter* json) {
  json->key("pool").begin_object().member("count", r.pooled.size()).member("bound_bytes", r.pool_bound_bytes);
  json->member("unbounded", r.pool_unbounded).key("owners").begin_array();
  for (const PooledOwner& p : r.pooled) {
    json->begin_object();
    write_owner(p.owner, json);
    json->member("bounded", p.is_bounded).end_object();
  }
  json->end_array().end_object();
}

}  // namespace

std::string print_plan(const PlanReport& report, size_t rows) {
  std::string out = report.title.empty() ? std::string() : one_line(report.title) + "\n";
  out += ranks_text(report.ranks, report.world) + "\n";
  print_totals(report, &out);
  for (const PhasePeak& p : report.phases)
    out += "  " + padded(p.phase, 11) + planned_text(p.bytes) + " at %" + p.node + "\n";
  if (report.allocation) out += print_allocation(*report.allocation);
  print_live(report, rows, &out);
  return out;
}

void write_plan(const PlanReport& r, JsonWriter* json) {
  json->begin_object();
  write_ranks(r.ranks, json);
  json->member("inputs_bytes", r.inputs_bytes).member("parameters_bytes", r.parameters_bytes);
  json->member("peak_bytes", r.peak_bytes).member("lower_bound_bytes", r.lower_bound_bytes);
  json->member("fragmentation_bytes", r.fragmentation_bytes()).member("output_bytes", r.output_bytes);
  json->member("host_bytes", r.host_bytes).member("host_bound_bytes", r.host_bound_bytes);
  json->key("peak").begin_object().member("node", r.peak_node).member("phase", r.peak_phase);
  json->member("module", r.peak_module).member("source", r.peak_source).end_object();
  json->member("call_bytes", r.call_bytes).key("phases").begin_array();
  for (const PhasePeak& p : r.phases)
    json->begin_object().member("phase", p.phase).member("bytes", p.bytes).member("node", p.node).end_object();
  json->end_array();
  if (r.allocation) write_allocation(*r.allocation, &json->key("allocator"));
  write_pool(r, json);
  json->key("live_at_peak").begin_array();
  for (const PlanOwner& o : r.live_at_peak) {
    json->begin_object();
    write_owner(o, json);
    json->end_object();
  }
  json->end_array().end_object();
}

}  // namespace sg

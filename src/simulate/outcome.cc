#include "simulate/outcome.h"

namespace oxbow::simulate {
namespace {

constexpr double kFull = 0.85;       // A server with this load sets the pace.
constexpr double kNearlyFull = 0.8;  // So does a learner with this share of work.
constexpr double kHalf = 0.5;

}  // namespace

const char* LimitOf(const RunModel& model, const Outcome& outcome) {
  const LearnerTime& t = outcome.learner;
  const double wall = outcome.wall_s;
  if (t.update_s + t.publish_s + t.other_s > kNearlyFull * wall) return "the learner";
  const double waits = t.wait_rollouts_s + t.wait_weights_s;
  if (t.down_s + t.lost_s > waits) return "restarts of the learner";
  if (model.reward_servers > 0 && outcome.reward_busy_s > kFull * wall * model.reward_servers) {
    return "rewards";
  }
  if (outcome.ingest_busy_s > kFull * wall * model.ranks) return "ingest";
  if (outcome.coordinator_busy_s > kFull * wall) return "the coordinator";
  if (t.wait_weights_s > t.wait_rollouts_s) return "weights";
  if (outcome.sampling_s < kHalf * wall * model.workers) {
    // Most workers are idle: the staleness budget has fewer groups than workers have places, or a
    // few slow groups hold up the step.
    const uint64_t budget = model.groups_per_step * (model.staleness_max + 1);
    const uint64_t places = uint64_t{model.workers} * model.groups_in_flight;
    return budget < places ? "too few groups for the workers" : "the slowest groups of a step";
  }
  return "rollouts";
}

}  // namespace oxbow::simulate

// SPDX-License-Identifier: Apache-2.0
#include "rpc/role_table.h"

#include "absl/container/flat_hash_map.h"

namespace oxbow::rpc {
namespace {

constexpr Roles kLearner = Role::kLearner;
constexpr Roles kWorker = Role::kWorker;
constexpr Roles kBuffer = Role::kBuffer;
constexpr Roles kReward = Role::kReward;
constexpr Roles kOperator = Role::kOperator;
constexpr Roles kAnyone = kLearner | kWorker | kBuffer | kReward | kOperator;
constexpr Roles kAsking = kLearner | kWorker | kOperator;

// clang-format off
constexpr RoleRow kTable[] = {
    // method                                     callers              servers
    {"/oxbow.v1.Coordinator/Register",            kWorker,             kLearner},
    {"/oxbow.v1.Coordinator/Work",                kWorker,             kLearner},
    {"/oxbow.v1.Coordinator/Status",              kAsking,             kLearner},
    {"/oxbow.v1.Coordinator/Drain",               kOperator,           kLearner},
    {"/oxbow.v1.Coordinator/Deliver",             kWorker,             kLearner},
    {"/oxbow.v1.ExperienceSink/Insert",           kWorker,             kLearner},
    {"/oxbow.v1.WeightChannel/Watch",             kWorker,             kLearner},
    {"/oxbow.v1.WeightChannel/Fetch",             kWorker | kLearner,  kLearner | kWorker},
    {"/oxbow.v1.WeightChannel/ReportApplied",     kWorker,             kLearner},
    {"/oxbow.v1.WeightChannel/ReportPeer",        kWorker,             kLearner},
    {"/oxbow.v1.LearnerRanks/Join",               kLearner,            kLearner},
    {"/oxbow.v1.LearnerRanks/Accept",             kLearner,            kLearner},
    {"/oxbow.v1.ReplayBuffer/Offer",              kLearner,            kBuffer},
    {"/oxbow.v1.ReplayBuffer/Draw",               kLearner,            kBuffer},
    {"/oxbow.v1.ReplayBuffer/Advance",            kLearner,            kBuffer},
    {"/oxbow.v1.ReplayBuffer/Checkpoint",         kLearner,            kBuffer},
    {"/oxbow.v1.ReplayBuffer/Restore",            kLearner | kOperator, kBuffer},
    {"/oxbow.v1.ReplayBuffer/Read",               kAsking,             kBuffer},
    {"/oxbow.v1.ReplayBuffer/Info",               kAsking,             kBuffer},
    {"/oxbow.v1.ReplayBuffer/List",               kLearner | kOperator, kBuffer},
    {"/oxbow.v1.ReplayBuffer/Verify",             kLearner | kOperator, kBuffer},
    {"/oxbow.v1.Reward/Describe",                 kAsking,             kReward},
    {"/oxbow.v1.Reward/Score",                    kWorker | kLearner,  kReward},
    {"/grpc.health.v1.Health/Check",              kAnyone,             kAnyone},
    {"/grpc.health.v1.Health/Watch",              kAnyone,             kAnyone},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kOperator, kAnyone},
};
// clang-format on

}  // namespace

std::span<const RoleRow> RoleTable() { return kTable; }

const RoleRow* RowOf(std::string_view method) {
  static const auto& rows = *[] {
    auto* made = new absl::flat_hash_map<std::string_view, const RoleRow*>;
    for (const RoleRow& row : kTable) made->emplace(row.method, &row);
    return made;
  }();
  const auto found = rows.find(method);
  return found == rows.end() ? nullptr : found->second;
}

}  // namespace oxbow::rpc

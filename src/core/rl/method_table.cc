// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "core/rl/awm.h"
#include "core/rl/grpo.h"
#include "core/rl/guard.h"
#include "core/rl/method.h"
#include "core/rl/nft.h"
#include "core/rl/v_grpo.h"

namespace oxbow::rl {
namespace {

using Factory = std::unique_ptr<Method> (*)(const TrainerOptions&, const model::Policy&,
                                            parallel::Ranks&);

template <typename Class>
std::unique_ptr<Method> Make(const TrainerOptions& options, const model::Policy& policy,
                             parallel::Ranks& ranks) {
  return std::make_unique<Class>(options, policy, ranks);
}

struct Row {
  MethodKind kind;
  Factory make;
};

constexpr Row kRows[] = {
    {MethodKind::kGrpo, Make<Grpo>}, {MethodKind::kGuard, Make<Guard>},
    {MethodKind::kDppo, Make<Dppo>}, {MethodKind::kNft, Make<Nft>},
    {MethodKind::kAwm, Make<Awm>},   {MethodKind::kVGrpo, Make<VGrpo>},
    {MethodKind::kGspo, Make<Gspo>},
};

}  // namespace

std::unique_ptr<Method> MakeMethod(const TrainerOptions& options, const model::Policy& policy,
                                   parallel::Ranks& ranks) {
  for (const Row& row : kRows) {
    if (row.kind == options.method) return row.make(options, policy, ranks);
  }
  OXBOW_CHECK(false) << "no class for method " << static_cast<int>(options.method);
}

}  // namespace oxbow::rl

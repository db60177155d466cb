// SPDX-License-Identifier: Apache-2.0
#include "services/reward/shared_calls.h"

#include <algorithm>

namespace oxbow::reward {
namespace {

constexpr uint64_t kSkippedFirst = 16;
constexpr uint64_t kSkippedMax = 1024;

}  // namespace

std::vector<std::vector<size_t>> DealGroups(const std::vector<uint64_t>& bytes, size_t servers,
                                            const SharedCallLimits& limits) {
  std::vector<std::vector<size_t>> shares(std::max<size_t>(servers, 1));
  for (size_t group = 0; group < bytes.size(); ++group) {
    if (bytes[group] <= limits.bytes) shares[group % shares.size()].push_back(group);
  }
  std::vector<std::vector<size_t>> calls;
  for (const std::vector<size_t>& share : shares) {
    uint64_t sum = 0;
    std::vector<size_t> call;
    const auto finish = [&] {
      if (call.size() > 1) calls.push_back(call);
      call.clear();
      sum = 0;
    };
    for (const size_t group : share) {
      if (call.size() >= limits.groups || sum + bytes[group] > limits.bytes) finish();
      call.push_back(group);
      sum += bytes[group];
    }
    finish();
  }
  return calls;
}

bool SharedCallRest::Tries() {
  if (left_ == 0) return true;
  --left_;
  return false;
}

void SharedCallRest::DidNotPay() {
  rest_ = std::clamp(2 * rest_, kSkippedFirst, kSkippedMax);
  left_ = rest_;
}

}  // namespace oxbow::reward

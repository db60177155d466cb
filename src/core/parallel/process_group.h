// The one thing in which the backends differ: how a process group is made.
//
// Both block until every rank has come, at most about `timeout`, and throw what c10d throws.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <string>

#include "absl/time/time.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace oxbow::parallel {

struct GroupOptions {
  c10::intrusive_ptr<c10d::Store> store;
  int rank;
  int size;
  c10::Device device;
  std::string address;    // Of rank 0.
  std::string interface;  // Empty: the one that leads to `address`.
  absl::Duration timeout;
};

c10::intrusive_ptr<c10d::Backend> MakeGlooGroup(const GroupOptions& options);
c10::intrusive_ptr<c10d::Backend> MakeNcclGroup(const GroupOptions& options);

bool HasNccl();  // Whether this build has MakeNcclGroup.

}  // namespace oxbow::parallel

// SPDX-License-Identifier: Apache-2.0
// Inputs of recomputed blocks in host memory: what recompute.h keeps of a pass leaves the device on
// the way forward and comes back on the way back, one block ahead. Videos have so many tokens that
// the inputs of all blocks are most of a pass.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <vector>

namespace oxbow::model {

// Where a network's block inputs go. For one thread at a time; passes may nest.
class HostInputs : public std::enable_shared_from_this<HostInputs> {
 public:
  explicit HostInputs(at::Device device);
  ~HostInputs();
  HostInputs(const HostInputs&) = delete;
  HostInputs& operator=(const HostInputs&) = delete;

  // The inputs of one block in a pass. They outlive HostInputs itself.
  class Kept {
   public:
    explicit Kept(std::shared_ptr<HostInputs> owner);
    ~Kept();
    // The inputs on the device again, in their order; those of the block before begin to come.
    // To be called once.
    std::vector<at::Tensor> Take();

   private:
    friend class HostInputs;
    void Fetch();

    struct Arrival;
    const std::shared_ptr<HostInputs> owner_;
    std::vector<at::Tensor> on_host_, on_device_;  // One of the two has them.
    std::unique_ptr<Arrival> arrival_;
    std::weak_ptr<Kept> before_;
  };

  // Sends the inputs of the pass's next block to the host. Whoever has them may let them go.
  std::shared_ptr<Kept> Keep(std::vector<at::Tensor> inputs);

  // Passes of this thread use these inputs while it lives.
  class Scope {
   public:
    explicit Scope(const std::shared_ptr<HostInputs>& inputs);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const std::shared_ptr<HostInputs> before_;
  };
  // Null outside of a scope.
  static const std::shared_ptr<HostInputs>& Current();

 private:
  struct Streams;
  void LetGo();

  const std::unique_ptr<Streams> streams_;  // Null on a CPU.
  std::vector<at::Tensor> leaving_;         // Still read by a copy to the host.
  std::weak_ptr<Kept> latest_;
};

}  // namespace oxbow::model

// SPDX-License-Identifier: Apache-2.0
// R ranks as threads of one process, for tests: every collective meets at a barrier and adds in
// rank order.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <barrier>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/parallel/ranks.h"

namespace oxbow::parallel {

class ThreadWorld {
 public:
  explicit ThreadWorld(int size)
      : tensors_(static_cast<size_t>(size)), bytes_(static_cast<size_t>(size)), barrier_(size) {}

  // Calls `body` once per rank, each in a thread of its own, and waits for all.
  void Run(const std::function<void(Ranks&)>& body) {
    std::vector<std::thread> threads;
    for (size_t r = 0; r < tensors_.size(); ++r) {
      threads.emplace_back([this, r, &body] {
        Member member(*this, static_cast<int>(r));
        body(member);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  class Finished final : public Pending {
   public:
    absl::Status Wait() override { return absl::OkStatus(); }
  };

  class Member final : public Ranks {
   public:
    Member(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(world_.tensors_.size()); }

    absl::Status AllReduceSum(at::Tensor& tensor) override {
      Meet(tensor, [&](const std::vector<at::Tensor>& all) {
        tensor.zero_();
        for (const at::Tensor& part : all) tensor.add_(part);
      });
      return absl::OkStatus();
    }
    absl::Status AllReduceMax(at::Tensor& tensor) override {
      Meet(tensor,
           [&](const std::vector<at::Tensor>& all) { tensor.copy_(at::stack(all).amax(0)); });
      return absl::OkStatus();
    }
    std::unique_ptr<Pending> StartAllReduceSum(const at::Tensor& tensor) override {
      at::Tensor alias = tensor;
      (void)AllReduceSum(alias);
      return std::make_unique<Finished>();
    }
    std::unique_ptr<Pending> StartReduceSum(const at::Tensor& tensor, int root) override {
      at::Tensor alias = tensor;
      (void)AllReduceSum(alias);
      if (rank_ != root) alias.fill_(std::nan(""));  // It holds no value.
      return std::make_unique<Finished>();
    }
    absl::Status ReduceScatterSum(const at::Tensor& input, at::Tensor& output) override {
      Meet(input, [&](const std::vector<at::Tensor>& all) {
        output.zero_();
        for (const at::Tensor& part : all)
          output.add_(part.chunk(size())[static_cast<size_t>(rank_)]);
      });
      return absl::OkStatus();
    }
    absl::Status AllGather(const at::Tensor& input, at::Tensor& output) override {
      Meet(input, [&](const std::vector<at::Tensor>& all) {
        output.view({-1}).copy_(at::stack(all).view({-1}));
      });
      return absl::OkStatus();
    }
    absl::Status Broadcast(at::Tensor& tensor, int root) override {
      Meet(tensor, [&](const std::vector<at::Tensor>& all) {
        tensor.copy_(all[static_cast<size_t>(root)]);
      });
      return absl::OkStatus();
    }
    std::unique_ptr<Pending> StartBroadcast(const at::Tensor& tensor, int root) override {
      at::Tensor alias = tensor;
      (void)Broadcast(alias, root);
      return std::make_unique<Finished>();
    }
    absl::Status Barrier() override {
      world_.barrier_.arrive_and_wait();
      return absl::OkStatus();
    }
    absl::StatusOr<std::vector<std::string>> GatherBytes(std::string_view mine) override {
      world_.bytes_[static_cast<size_t>(rank_)] = std::string(mine);
      world_.barrier_.arrive_and_wait();
      std::vector<std::string> all = world_.bytes_;
      world_.barrier_.arrive_and_wait();
      return all;
    }
    absl::Status BroadcastBytes(std::string& bytes, int root) override {
      bytes = (*GatherBytes(bytes))[static_cast<size_t>(root)];
      return absl::OkStatus();
    }
    void Abort(const absl::Status&) override {}

   private:
    template <typename Use>
    void Meet(const at::Tensor& mine, const Use& use) {
      const at::NoGradGuard no_grad;
      world_.tensors_[static_cast<size_t>(rank_)] = mine.detach().clone();
      world_.barrier_.arrive_and_wait();
      use(world_.tensors_);
      world_.barrier_.arrive_and_wait();
    }

    ThreadWorld& world_;
    const int rank_;
  };

  std::vector<at::Tensor> tensors_;
  std::vector<std::string> bytes_;
  std::barrier<> barrier_;
};

}  // namespace oxbow::parallel

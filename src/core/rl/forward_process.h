// Forward-process methods: the final picture x_0 is noised again, x_t = (1 - t) x_0 + t eps, and
// the loss is a function of the velocities there. How the picture was drawn does not matter: a
// plain ODE will do, and there is no density to correct: a replayed picture is trained on as a
// fresh one is.
//
//   DiffusionNFT  nft.h          AWM  awm.h          V-GRPO  v_grpo.h
#pragma once

#include "core/rl/method.h"
#include "core/rl/old_velocity.h"

namespace oxbow::rl {

class ForwardProcess final : public Method {
 public:
  // All references outlive it. `options.method` is one of this family.
  ForwardProcess(const TrainerOptions& options, const model::Policy& policy,
                 parallel::Ranks& ranks);

  int RowsPerSample(LearnerStep step) const override;

  // One row per pair of time and noise. Requires that the sample's latents end at its picture.
  PlannedSample Plan(LearnerStep step, PolicyVersion version, const Group& group,
                     const Sample& sample) const override;

  absl::StatusOr<Preparation> Prepare(LearnerStep step, StepPlan& plan,
                                      const std::vector<Group>& groups) override;
  RowBatch Gather(const std::vector<Group>& groups, const std::vector<RowRef>& refs) const override;
  RowTerms Terms(const RowBatch& batch, const std::vector<RowRef>& refs,
                 const at::Tensor& v) const override;
  double KlScaleOf(const PlannedRow& row) const override;

 private:
  RowTerms NftTerms(const RowBatch& batch, const std::vector<RowRef>& refs,
                    const at::Tensor& v) const;
  RowTerms AwmTerms(const RowBatch& batch, const std::vector<RowRef>& refs,
                    const at::Tensor& v) const;
  RowTerms VGrpoTerms(const RowBatch& batch, const std::vector<RowRef>& refs,
                      const at::Tensor& v) const;
  RowTerms Clipped(const std::vector<RowRef>& refs, const at::Tensor& lp_new,
                   const at::Tensor& lp_old, bool mean_first, double advantage_scale) const;

  const TrainerOptions& options_;
  const model::Policy& policy_;
  parallel::Ranks& ranks_;
  const int pairs_;
  uint64_t step_ = 0;  // Of the plan in hand: names what its samples share.
  OldVelocities old_;
};

}  // namespace oxbow::rl

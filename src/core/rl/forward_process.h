// SPDX-License-Identifier: Apache-2.0
// Forward-process methods: the final image x_0 is noised again, x_t = (1 - t) x_0 + t eps, and
// the loss is a function of the velocities there. How the image was drawn does not matter: a
// plain ODE will do, and there is no density to correct. A replayed image is trained on as a
// fresh one is.
//
// A method of the family adds the loss of a row:
//
//   DiffusionNFT  nft.h          AWM  awm.h          V-GRPO  v_grpo.h
#pragma once

#include "core/rl/method.h"

namespace oxbow::rl {

class ForwardProcess : public Method {
 public:
  ForwardProcess(const TrainerOptions& options, const model::Policy& policy,
                 parallel::Ranks& ranks);

  int RowsPerSample(LearnerStep step) const override;

  // One row per pair of time and noise. Requires that the sample's latents end at its final latent.
  PlannedTrajectory Plan(LearnerStep step, PolicyVersion version, const Group& group,
                         const Trajectory& trajectory) const override;

  // Where rows have a ratio, or the KL pulls towards the policy before the step: the velocities of
  // rows that later updates train.
  absl::StatusOr<Preparation> Prepare(LearnerStep step, TrainingPlan& plan,
                                      const std::vector<Group>& groups,
                                      const std::function<bool()>& interrupted) override;
  RowBatch Gather(LearnerStep step, const std::vector<Group>& groups,
                  const std::vector<RowRef>& refs) const override;
  double KlScaleOf(const PlannedRow& row) const override;

 protected:
  // PPO's clip of exp(lp_new - lp_old), of each row or of each sample's means.
  RowTerms Clipped(const std::vector<RowRef>& refs, const at::Tensor& lp_new,
                   const at::Tensor& lp_old, bool mean_first, double advantage_scale) const;

  // Whether samples are drawn with the policy's old copy; their ratio is then to it.
  bool SamplesWithOld() const;

  // Velocities of the policy's old copy at the rows of `batch`; no gradient.
  at::Tensor OldCopyVelocity(const RowBatch& batch) const;

 private:
  const int pairs_;
};

}  // namespace oxbow::rl

// Classifier-free guidance (arXiv:2207.12598) as a velocity model of its own:
//
//   v = v_negative + scale (v_prompt - v_negative)
//
// Both come from one batch of 2 B rows, and gradients flow through both, so that the policy that is
// trained is the one that draws.
#pragma once

#include <memory>

#include "core/model/velocity_model.h"

namespace oxbow::model {

// `negative`: rows of one, with as many tokens as the prompts it will be used with.
std::unique_ptr<VelocityModel> MakeGuided(std::unique_ptr<VelocityModel> model, double scale,
                                          Conditioning negative);

}  // namespace oxbow::model

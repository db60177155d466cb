// SPDX-License-Identifier: Apache-2.0
// Fewer steps after the last stochastic one, as in MixGRPO-Flash (arXiv:2507.21802).
//
// Steps without noise are not trained. So behind the last stochastic step the path need not visit
// the levels of the run's grid: a solver of second order (kDpmpp2m) gets to the picture in fewer
// steps. With R steps left from the level sigma, R + 1 levels, the path takes
//
//   n       = max(1, floor(share (R + 1)) - 1) steps
//   sigma_j = shift(u (1 - j / n)),  where shift(u) = sigma
//
// that is, equal steps of the time before the shift. Levels up to sigma keep their places and their
// bits, so transitions are scored as in any other path.
#pragma once

#include <vector>

namespace oxbow::flow {

// The solver of deterministic steps; see dpmpp.h. Stochastic steps use their kernel.
enum class SolverKind { kEuler, kDpmpp2m, kDpmppHeun };

struct Compression {
  double share = 1;    // The share of the levels left that stays; 1: nothing is compressed.
  double shift = 1;    // The shift of the run's grid.
  bool carry = false;  // The solver goes on from the step before, though that was stochastic.

  bool on() const { return share < 1; }
};

// n for R steps; R where nothing is compressed. Requires share in (0, 1] and R >= 0.
int CompressedSteps(double share, int steps);

// The levels after x_{first} of a grid that ends at 0, compressed. Requires first < sigmas.size().
std::vector<double> CompressedLevels(const Compression& compression,
                                     const std::vector<double>& sigmas, int first);

// The first latent, of x_{first_step} and later ones, behind which no step is stochastic.
int FirstFreeLatent(const std::vector<bool>& sde, int first_step);

// Steps that a path with these stochastic steps takes from x_{first_step}.
int StepsTaken(double share, const std::vector<bool>& sde, int first_step);

}  // namespace oxbow::flow

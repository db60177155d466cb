// SPDX-License-Identifier: Apache-2.0
// How --help reads: lines of at most 100 columns, what a value may be in words, and options that
// stand for each other under "One of these is required".
//
//   --count N                   images per prompt (1 to 4096; default 1)
//   --tls-key TEXT              PEM file of its private key (or OXBOW_TLS_KEY)
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace oxbow {

class HelpPage : public CLI::Formatter {
 public:
  std::string make_positionals(const CLI::App* app) const override;
  std::string make_expanded(const CLI::App* sub) const override;
  std::string make_subcommand(const CLI::App* sub) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

// To be called before options and subcommands are added, which take it over.
inline void UseHelpPage(CLI::App& app) { app.formatter(std::make_shared<HelpPage>()); }

}  // namespace oxbow

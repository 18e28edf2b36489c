// slm models: what is in the local store.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "progress.h"
#include "store.h"
#include "verb.h"

namespace slm::cli {
namespace {

nlohmann::ordered_json Describe(const StoredModel& model) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const auto& file : model.files) files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  const auto text = [](const std::string& s) { return s.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(s); };
  return {{"name", model.name},
          {"path", model.path},
          {"bytes", model.bytes},
          {"source", text(model.source)},
          {"revision", text(model.revision)},
          {"license", text(model.license)},
          {"files", std::move(files)},
          {"error", model.damage ? ErrorJson(*model.damage)["error"] : nlohmann::ordered_json(nullptr)}};
}

Result<int> PrintModels(Io& io) {
  SLM_ASSIGN_OR_RETURN(const auto models, ListModels(io.store));
  if (io.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto& model : models) list.push_back(Describe(model));
    io.PrintJson(list);
    return int{kExitOk};
  }
  if (models.empty()) {
    io.Note("the store " + io.store + " is empty; slm fetch --list shows what can be fetched by name");
    return int{kExitOk};
  }
  size_t width = 0;
  for (const auto& model : models) width = std::max(width, model.name.size());
  for (const auto& model : models) {
    std::string size = FormatBytes(model.bytes);
    size.insert(0, size.size() < 9 ? 9 - size.size() : 0, ' ');
    io.Print(model.name + std::string(width - model.name.size(), ' ') + "  " + size + "  " + model.path + "\n");
    if (model.damage) io.Note(ErrorLine(*model.damage));
  }
  return int{kExitOk};
}

}  // namespace

Body DeclareModels(CLI::App& app, Io& io) {
  app.footer("Example:\n  slm models --json");
  return [&io]() -> Result<int> { return PrintModels(io); };
}

}  // namespace slm::cli

// slm rm: deletes a model from the local store, and nothing else.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "progress.h"
#include "store.h"
#include "verb.h"

namespace slm::cli {

Body DeclareRm(CLI::App& app, Io& io) {
  auto name = std::make_shared<std::string>();
  app.add_option("NAME", *name, "model of the store, as slm models lists it")->required();
  app.footer("Example:\n  slm rm smollm2-135m-instruct");
  return [name, &io]() -> Result<int> {
    SLM_ASSIGN_OR_RETURN(const uint64_t freed, RemoveModel(io.store, *name));
    if (io.json) io.PrintJson({{"name", *name}, {"freed_bytes", freed}});
    else io.Print("removed " + *name + ", " + FormatBytes(freed) + "\n");
    return int{kExitOk};
  };
}

}  // namespace slm::cli

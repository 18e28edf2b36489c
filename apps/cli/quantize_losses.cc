// See quantize_losses.h. Tensors are taken from the container, so that the architecture does not matter.
#include "quantize_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "load_decoder.h"
#include "model/model.h"
#include "quant/losses/losses.h"
#include "store.h"

namespace slm::cli {
namespace {
using nlohmann::ordered_json;

// What one scheme does to one matrix; without a loss: why its width does not go with the scheme.
struct Cell {
  std::optional<quant::RoundingLoss> loss;
  std::string why;
};

ordered_json Decibel(const quant::RoundingLoss& l) {
  return std::isfinite(l.sqnr_db()) ? ordered_json(l.sqnr_db()) : ordered_json(nullptr);
}

ordered_json CellJson(const std::string& scheme, const Cell& c) {
  if (!c.loss) return {{"scheme", scheme}, {"stored", nullptr}, {"why", c.why}};
  return {
      {"scheme", scheme}, {"stored", c.loss->stored}, {"bits", c.loss->bits}, {"error", c.loss->error()}, {"sqnr_db", Decibel(*c.loss)}};
}

std::string CellText(const Cell& c, const std::string& scheme) {
  if (!c.loss) return "-";
  const std::string figures = c.loss->lost > 0 ? fmt::format("{:.5f} {:5.1f} dB", c.loss->error(), c.loss->sqnr_db()) : "exact";
  return c.loss->stored == scheme ? figures : figures + " (" + c.loss->stored + ")";
}

// Of the matrices that have the scheme itself: everything lost over everything there was.
struct Total {
  quant::RoundingLoss sum;
  int64_t weights = 0, others = 0;  // matrices with another type, or none
};

class Losses {
 public:
  Losses(const LossesRequest& r, Io& io) : r_(r), io_(io) {}

  Result<int> Run() {
    for (const std::string& name : r_.schemes) {
      SLM_ASSIGN_OR_RETURN(quant::RoundingScheme scheme, quant::ParseRounding(name));
      schemes_.push_back(std::move(scheme));
    }
    totals_.resize(schemes_.size());
    SLM_ASSIGN_OR_RETURN(const std::string path, ResolveModel(io_, r_.source));
    SLM_ASSIGN_OR_RETURN(const auto m, model::LoadModel(path, model::LoadWhat::kContainer));
    SLM_RETURN_IF_ERROR(RefusePackage(*m));
    SLM_ASSIGN_OR_RETURN(const auto team, ThreadTeam::Create(r_.n_threads));
    if (!io_.json) io_.Print(Head());
    for (const model::Tensor& t : m->tensors) {
      if (!quant::IsFloatMatrix(t)) continue;
      if (io_.cancelled()) return Error(Code::kCancelled, "interrupted");
      auto cells = CellsOf(t, *team);
      if (!cells.ok()) return cells.error().At(path);
      Add(t, cells.value());
      m->DropPages(t);
    }
    if (n_ == 0) return Error(Code::kNotFound, path + ": no matrices of floats", "name a float model: F32, F16 or BF16");
    Finish(path);
    return int{kExitOk};
  }

 private:
  Result<std::vector<Cell>> CellsOf(const model::Tensor& t, ThreadTeam& team) {
    std::vector<Cell> cells;
    for (size_t s = 0; s < schemes_.size(); ++s) {
      const auto loss = quant::MeasureRounding(t, schemes_[s], r_.search, team);
      if (!loss.ok() && loss.error().code() != Code::kUnsupported) return loss.error();
      cells.push_back(loss.ok() ? Cell{loss.value(), ""} : Cell{std::nullopt, loss.error().message()});
      Total& total = totals_[s];
      if (!loss.ok() || loss.value().stored != schemes_[s].name) {
        ++total.others;
        continue;
      }
      total.sum.lost += loss.value().lost;
      total.sum.power += loss.value().power;
      total.sum.bits += loss.value().bits * static_cast<double>(t.n_values());
      total.weights += t.n_values();
    }
    return cells;
  }

  void Add(const model::Tensor& t, const std::vector<Cell>& cells) {
    ++n_;
    if (!io_.json) {
      std::string line = fmt::format("{:<{}} {:>13}", t.name, kNameWidth, fmt::format("{} x {}", t.dims[0], t.dims[1]));
      for (size_t s = 0; s < cells.size(); ++s) line += fmt::format("  {:>{}}", CellText(cells[s], schemes_[s].name), kCellWidth);
      io_.Print(line + "\n");
      return;
    }
    ordered_json losses = ordered_json::array();
    for (size_t s = 0; s < cells.size(); ++s) losses.push_back(CellJson(schemes_[s].name, cells[s]));
    tensors_.push_back({{"name", t.name}, {"rows", t.dims[0]}, {"width", t.dims[1]}, {"losses", std::move(losses)}});
  }

  std::string Head() const {
    std::string line = fmt::format("{:<{}} {:>13}", "root mean square error, relative", kNameWidth, "");
    for (const quant::RoundingScheme& s : schemes_) line += fmt::format("  {:>{}}", s.name, kCellWidth);
    return line + "\n";
  }

  void Finish(const std::string& path) {
    ordered_json all = ordered_json::array();
    std::string line = fmt::format("{:<{}} {:>13}", "all with the scheme itself", kNameWidth, "");
    for (size_t s = 0; s < schemes_.size(); ++s) {
      Total& t = totals_[s];
      const bool any = t.weights > 0;
      t.sum.stored = schemes_[s].name;
      if (any) t.sum.bits /= static_cast<double>(t.weights);
      const Cell cell = any ? Cell{t.sum, ""} : Cell{std::nullopt, "no matrix has a width that goes with it"};
      all.push_back(CellJson(schemes_[s].name, cell));
      all.back()["weights"] = t.weights;
      all.back()["matrices"] = n_ - t.others;
      line += fmt::format("  {:>{}}", CellText(cell, schemes_[s].name), kCellWidth);
    }
    if (!io_.json) return io_.Print(line + "\n");
    io_.PrintJson({{"source", path},
                   {"search", r_.search == quant::Search::kRefit ? "refit" : "rtn"},
                   {"all", std::move(all)},
                   {"tensors", std::move(tensors_)}});
  }

  static constexpr int kNameWidth = 44, kCellWidth = 24;
  const LossesRequest& r_;
  Io& io_;
  std::vector<quant::RoundingScheme> schemes_;
  std::vector<Total> totals_;
  ordered_json tensors_ = ordered_json::array();
  int64_t n_ = 0;
};

}  // namespace

Result<int> ReportLosses(const LossesRequest& request, Io& io) { return Losses(request, io).Run(); }

}  // namespace slm::cli

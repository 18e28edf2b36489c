"""The figures that every engine is measured by: their keys, headings and which direction is good. The one list of them."""
import dataclasses
import statistics

PROMPT, SHORT_PROMPT, STEPS, DEPTH = 512, 32, 128, 1024  # tokens


@dataclasses.dataclass(frozen=True)
class Figure:
    key: str
    heading: str
    unit: str
    higher_is_better: bool

    def ratio(self, ours, theirs):
        """How many times better ours is: above 1 is good, whatever the unit."""
        return ours / theirs if self.higher_is_better else theirs / ours


FIGURES = (
    Figure("pp512", "pp512", "tok/s", True),
    Figure("ttft32_ms", "TTFT of 32", "ms", False),
    Figure("tg128", "tg128", "tok/s", True),
    Figure("tg128_d1024", "tg128 @d1024", "tok/s", True),
    Figure("first_ms", "start to token", "ms", False),
    Figure("rss_mib", "peak RSS", "MiB", False),
)


def digits(value):
    """Three or four significant digits: 3602, 381, 49.6, 6.87."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values):
    """{median, min, max, n} of the rounds that have a value, or None."""
    values = [v for v in values if v is not None]
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)} if values else None


def paired_ratio(figure, ours, theirs):
    """Median over the rounds of the round's own ratio, so that what touched both in a round cancels; None without a pair."""
    ratios = [figure.ratio(a, b) for a, b in zip(ours, theirs) if a and b]
    return statistics.median(ratios) if ratios else None

"""A mechanism that only measures."""

from dataclasses import dataclass

from od_core.group_sizes.groups import Query


@dataclass(frozen=True)
class Measuring:
    """Test double: any query, and nothing made of it."""

    query: Query
    leaves_alone: bool = False
    name: str = "measuring"
    adds_up: bool = False
    keeps_totals: bool = False

    @property
    def options(self) -> dict[str, str]:
        return {}

    def list_level_queries(self, depth):
        return (self.query,) * (1 if self.leaves_alone else depth)

    def estimate(self, frame, noisy, scale):
        raise NotImplementedError

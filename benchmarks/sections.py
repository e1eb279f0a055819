"""Make synthetic commuter flows between census sections, with the numbers of areas of Italy."""

from __future__ import annotations

import numpy as np

from od_core.evaluation.known_flows import (
    TOWN,
    SyntheticFlows,
    compute_scaling_power,
    draw_gravity_flows,
    draw_italian_towns,
    make_generator,
    make_geography_from_codes,
    make_italian_codes,
    make_numbered_codes,
    scale_table_size,
    split_total,
)


def italy_sections(
    seed: int, *, scale: float = 1.0, pairs: int = 23_140_000, trips: int = 28_800_000
) -> SyntheticFlows:
    """Return synthetic commuter flows between census sections, with the numbers of areas of Italy.

    At scale 1, there are 357,708 sections in 9,249 section areas of the towns of
    :func:`od_core.evaluation.known_flows.make_italy_flows`, whose model, arguments and errors these are.
    """
    generator = make_generator(seed)
    power = compute_scaling_power(357_708, scale)
    province_counts, town_counts, town_size = draw_italian_towns(generator, power)
    area_counts = split_total(town_size, round(9_249**power), round(62**power))
    area_size = np.repeat(town_size / area_counts, area_counts)
    appeal = area_size**0.7 * generator.gamma(8.0, size=len(area_size))
    section_counts = split_total(appeal, round(357_708**power), round(185**power))
    codes = make_italian_codes(province_counts, town_counts)
    first_area = np.cumsum(area_counts) - area_counts
    codes.append(make_numbered_codes(codes[-1], area_counts, 3))
    codes.append(make_numbered_codes(codes[TOWN - 1], np.add.reduceat(section_counts, first_area), 6))
    fan_outs = (np.array([len(province_counts)]), province_counts, town_counts, area_counts, section_counts)
    geography = make_geography_from_codes(["region", "province", "town", "section_area", "section"], codes, fan_outs)
    size = generator.gamma(4.0, size=len(geography.zones))
    reach = {TOWN: 0.55, 2: 0.25, 1: 0.12, 0: 0.08}
    sizes = scale_table_size(geography, scale, pairs, trips)
    return draw_gravity_flows(generator, "italy_sections", geography, size, reach, *sizes)

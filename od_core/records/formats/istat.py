"""Describe the commuter records of ISTAT, Italy, by municipality of home and of work or study (pendolarismo, 2011).

``matrix_pendo2011_10112014.txt`` (matrice del pendolarismo) has no header. Its 15 columns have fixed widths and are
separated by blanks:

1. record: L if means, departure and duration are given, otherwise S
2. household: 1 family, 2 institution
3. home_province, three digits
4. home_municipality, three digits within the province
5. sex: 1 male, 2 female
6. reason: 1 study, 2 work
7. place: 1 municipality of residence, 2 another municipality, 3 abroad
8. work_province, 000 abroad
9. work_municipality, 000 abroad
10. country, 000 in Italy
11. means of transport, 01 to 12; + in records S
12. departure: 1 before 7:15 to 4 after 9:14; + in records S
13. duration: 1 up to 15 minutes to 4 above 60; + in records S
14. estimate: number of persons, with decimals, estimated from the sample with the long questionnaire; ND in records S
15. count: number of persons; ND in records L

The 988,625 records S count all 28,871,447 commuters. The records L are estimates of the same commuters, so they are not
read. Source: ISTAT, "Matrici del pendolarismo" (2014), "Tracciato record dei file",
https://www.istat.it/it/archivio/139381.
"""

from __future__ import annotations

from od_core.records.format import RecordColumns, RecordFormat

ISTAT = RecordFormat(
    "istat",
    "lines",
    RecordColumns("residence", "workplace", trips="count"),
    fields=(
        "record",
        "household",
        "home_province",
        "home_municipality",
        "sex",
        "reason",
        "place",
        "work_province",
        "work_municipality",
        "country",
        "means",
        "departure",
        "duration",
        "estimate",
        "count",
    ),
    joined=(
        ("residence", ("home_province", "home_municipality")),
        ("workplace", ("work_province", "work_municipality")),
    ),
    estimates=("estimate",),
    categories=(("record", ("S",)),),
    nowhere=("000000",),
)
"""Format of the 2011 file. The code of a municipality has six digits: three of its province, and three of its own."""

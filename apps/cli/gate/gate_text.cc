// The text that a quantized model is judged on when the user names none: 10 kB of English speech, notes, code, dialogue, German, French
// and Spanish, about 2600 tokens. It shares nothing with the text of calibration, and changing it changes every figure measured on it.
//
// Sources: annual messages of presidents of the United States, 1997 and 1969, and aviation incident reports of the US government, all
// public domain; the rest (canal locks, code, dialogue, other languages) was written for this file, under the repository's licence.
#include "gate/gate.h"

namespace slm::cli {

std::string_view GateText() {
  return R"slm_text(Tonight I issue a challenge to the Nation: Every State should adopt high national standards, and by 1999, every State should test every fourth grader
in reading and every eighth grader in math to make sure these standards are met. Raising standards will not be easy, and some of our children will not
be able to meet them at first. The point is not to put our children down but to lift them up. Good tests will show us who needs help, what changes in
teaching to make, and which schools need to improve. They can help us end social promotions, for no child should move from grade school to junior high
or junior high to high school until he or she is ready. Last month our Secretary of Education, Dick Riley, and I visited northern Illinois, where
eighth-grade students from 20 school districts, in a project aptly called First in the World, took the Third International Math and Science Study.
That's a test that reflects the world-class standards our children must meet for the new era. And those students in Illinois tied for first in the
world in science and came in second in math. Two of them, Kristen Tanner and Chris Getsler, are here tonight, along with their teacher, Sue Winski.
They're up there with the First Lady. And they prove that when we aim high and challenge our students, they will be the best in the world. Let's give
them a hand. Stand up, please. [Applause] Second, to have the best schools, we must have the best teachers. Most of us in this Chamber would not be
here tonight without the help of those teachers; I know that I wouldn't be here. For years, many of our educators, led by North Carolina's Governor
Jim Hunt and the National Board for Professional Teaching Standards, have worked very hard to establish nationally accepted credentials for excellence
in teaching. Just 500 of these teachers have been certified since 1995. My budget will enable 100,000 more to seek national certification as master
teachers. We should reward and recognize our best teachers, and as we reward them, we should quickly and fairly remove those few who don't measure up.
And we should challenge more of our finest young people to consider teaching as a career. Third, we must do more to help all our children read. Forty
percent-40 percent-of our 8-year-olds cannot read on their own. That's why we have just launched the America Reads initiative, to build a citizen army
of one million volunteer tutors to make sure every child can read independently by the end of the third grade. We will use thousands of AmeriCorps
volunteers to mobilize this citizen army. We want at least 100,000 college students to help, and tonight I am pleased that 60 college presidents have
answered my call, pledging that thousands of their work-study students will serve for one year as reading tutors. This is also a challenge to every
teacher and every principal: You must use these tutors to help students read. And it is especially a challenge to our parents: You must read with your
children every night. This leads to the fourth principle: Learning begins in the first days of life. Scientists are now discovering how young children
develop emotionally and intellectually from their very first days and how important it is for parents to begin immediately talking, singing, even
reading to their infants. The First Lady has spent years writing about this issue, studying it. And she and I are going to convene a White House
conference on early learning and the brain this spring, to explore how parents and educators can best use these startling new findings.

WHILE TAXIING LOST NOSEWHEEL STEERING AND BRAKES. STRUCK 2 AIRCRAFT AND FENCE. CIRCUIT BREAKER HYDRAULIC PUMP OPEN.
FORWARD CARGO DOOR OPENED AS AIRCRAFT TOOK OFF. OBJECTS DROPPED OUT. RETURNED. FAILED TO SEE WARNING LIGHT.
FORCED LANDING AFTER ONE ENGINE QUIT;FOUND ICE IN AUXILIARY FUEL SYSTEM.
PILOT WAS DESCENDING TO LOWER ALTITUDE DUE TO ICING. LOST CONTROL. ALTIMETER NOT IFR CERTIFIED. ICING FORECAST.
RAN OUT OF FUEL ON FERRY FLIGHT. LEFT PONTOON SEPARATED LANDING IN A POND. FUEL CAP NOT SECURED. FUEL SIPHONED.
(.4)THE PILOT SAID THAT SHORTLY AFTER TAKEOFF, THE ENGINE 'STARTED CUTTING OUT AND WAS NOT DEVELOPING ENOUGH POWER

How a canal lock works

A lock is a chamber with a gate at each end. A boat that travels uphill enters through the lower gate, which is closed behind it. A valve in the upper gate is
then opened, and water flows in by gravity alone until the level in the chamber equals the level of the upper reach. Only now can the upper gate be moved: as
long as the two levels differ by even a few centimetres, several tonnes of water press the leaves together. No pump is needed in either direction. What a lock
costs is water: each passage lets one chamber full of it run downhill, so the summit of a busy canal needs a reservoir of its own. On some routes side basins
catch half of the water on the way down and give it back on the way up.

Q: A lock chamber is 22 metres long and 2.2 metres wide, and it lifts a boat by 2.5 metres. How much water does one passage use?
A: The volume is length times width times height: 22 * 2.2 * 2.5 = 121. One passage uses 121 cubic metres of water, about 121,000 litres. With a side basin that
saves half of it, 60.5 cubic metres.

Q: Fourteen boats go up on Saturday and nine on Sunday. How many cubic metres is that without a side basin?
A: 14 + 9 = 23 passages. 23 * 121 = 2783 cubic metres.

Thank you and good night.

Mr. Speaker, Mr. President, Members of the Congress and my fellow Americans: For the sixth and the last time, I present to the Congress my assessment
of the State of the Union. I shall speak to you tonight about challenge and opportunity-and about the commitments that all of us have made together
that will, if we carry them out, give America our best chance to achieve the kind of great society that we all want. Every President lives, not only
with what is, but with what has been and what could be. Most of the great events in his Presidency are part of a larger sequence extending back
through several years and extending back through several other administrations. Urban unrest, poverty, pressures on welfare, education of our people,
law enforcement and law and order, the continuing crisis in the Middle East, the conflict in Vietnam, the dangers of nuclear war, the great
difficulties of dealing with the Communist powers, all have this much in common: They and their causes-the causes that gave rise to them-all of these
have existed with us for many years. Several Presidents have already sought to try to deal with them. One or more Presidents will try to resolve them
or try to contain them in the years that are ahead of us. But if the Nation's problems are continuing, so are this great Nation's assets: -our
economy, -the democratic system, -our sense of exploration, symbolized most recently by the wonderful flight of the Apollo 8, in which all Americans
took great pride, -the good commonsense and sound judgment of the American people, and -their essential love of justice. We must not ignore our
problems. But .neither should we ignore our strengths. Those strengths are available to sustain a President of either party-to support his progressive
efforts both at home and overseas. Unfortunately, the departure of an administration does not mean the end of the problems that this administration
has faced. The effort to meet the problems must go on, year after year, if the momentum that we have all mounted together in these past years is not
to be lost. Although the struggle for progressive change is continuous, there are times when a watershed is reached-when there is-if not really a
break with the past-at least the fulfillment of many of its oldest hopes, and a stepping forth into a new environment, to seek new goals. I think the
past 5 years have been such a time. We have finished a major part of the old agenda. Some of the laws that we wrote have already, in front of our
eyes, taken on the flesh of achievement. Medicare that we were unable to pass for so many years is now a part of American life. Voting rights and the
voting booth that we debated so long back in the riffles, and the doors to public service, are open at last to all Americans regardless of their
color. Schools and school children all over America tonight are receiving Federal assistance to go to good schools.

def merge(intervals):
    """Joins overlapping closed intervals; the input may be in any order."""
    result = []
    for low, high in sorted(intervals):
        if result and low <= result[-1][1]:
            result[-1][1] = max(result[-1][1], high)
        else:
            result.append([low, high])
    return [tuple(pair) for pair in result]


assert merge([(5, 8), (1, 3), (2, 4)]) == [(1, 4), (5, 8)]

SELECT city, COUNT(*) AS stations, AVG(depth_m) AS mean_depth
FROM wells
WHERE measured_on >= '2019-04-01' AND depth_m IS NOT NULL
GROUP BY city
HAVING COUNT(*) > 3
ORDER BY mean_depth DESC;

"You said the ferry was at six," said Marta. She put the bag down on the wet planks and looked at the empty pier.
"I said that it leaves at six in summer." Her brother had to raise his voice against the wind. "It is the third of November. The next one is at a
quarter past nine."
"And what are we supposed to do until then? The café is closed, the waiting room is locked, and your phone has been dead since noon."
He thought about it for a while. Then he sat down on the bag, pulled an orange out of his coat and began to peel it. "We could talk," he said. "We
have not done that since
Grandmother's birthday." Out in the bay a buoy rang twice, and the first drops fell on the roof of the boathouse.

Die Werkstatt lag im Hinterhof, und wer sie nicht kannte, ging an der niedrigen Tür vorbei. Drinnen roch es nach Leim und nach Sägespänen. An der Wand
hingen Geigen ohne
Saiten, jede mit einem Zettel, auf dem in kleiner Schrift stand, was ihr fehlte. Der Meister sprach wenig; er klopfte mit dem Fingerknöchel auf das
Holz, hielt den Kopf
schräg und wusste dann, wo der Riss war.

Le train avait du retard, comme presque tous les vendredis. Sur le quai, une femme lisait à voix haute une lettre à son fils, qui voulait surtout
savoir si le chien viendrait
aussi. Quand l'annonce changea pour la troisième fois, quelques voyageurs rirent, et l'on se mit à partager ce que l'on avait : du pain, une pomme, un
jeu de cartes.

Cuando por fin dejó de llover, los niños salieron a medir los charcos con un palo marcado a cuchillo. El más hondo estaba delante de la panadería y
llegaba hasta la séptima
raya; decidieron que era un lago y le pusieron nombre.
)slm_text";
}

}  // namespace slm::cli

"""Tables of facts: subject -> answer."""


def _pairs(text: str) -> dict[str, str]:
    """Parse ``key: value`` entries separated by semicolons."""
    entries = (entry.split(":", 1) for entry in text.split(";") if entry.strip())
    return {" ".join(key.split()): " ".join(value.split()) for key, value in entries}


CAPITALS = _pairs("""
France: Paris; Germany: Berlin; Italy: Rome; Spain: Madrid; Portugal: Lisbon; Austria: Vienna;
Switzerland: Bern; Belgium: Brussels; the Netherlands: Amsterdam; Denmark: Copenhagen;
Sweden: Stockholm; Norway: Oslo; Finland: Helsinki; Iceland: Reykjavik; Ireland: Dublin;
England: London; Scotland: Edinburgh; Wales: Cardiff; Poland: Warsaw; Hungary: Budapest;
Romania: Bucharest; Bulgaria: Sofia; Greece: Athens; Turkey: Ankara; Russia: Moscow; Ukraine: Kyiv;
Croatia: Zagreb; Serbia: Belgrade; Slovenia: Ljubljana; Slovakia: Bratislava; Estonia: Tallinn;
Latvia: Riga; Lithuania: Vilnius; Albania: Tirana; Malta: Valletta; Cyprus: Nicosia; Egypt: Cairo;
Morocco: Rabat; Algeria: Algiers; Tunisia: Tunis; Libya: Tripoli; Kenya: Nairobi; Nigeria: Abuja;
Ghana: Accra; Senegal: Dakar; Ethiopia: Addis Ababa; Uganda: Kampala; Rwanda: Kigali;
Zambia: Lusaka; Zimbabwe: Harare; Angola: Luanda; Mali: Bamako; Sudan: Khartoum; Japan: Tokyo;
China: Beijing; South Korea: Seoul; North Korea: Pyongyang; India: New Delhi; Pakistan: Islamabad;
Nepal: Kathmandu; Thailand: Bangkok; Vietnam: Hanoi; Indonesia: Jakarta; Malaysia: Kuala Lumpur;
the Philippines: Manila; Mongolia: Ulaanbaatar; Iran: Tehran; Iraq: Baghdad; Syria: Damascus;
Jordan: Amman; Lebanon: Beirut; Saudi Arabia: Riyadh; Qatar: Doha; Bangladesh: Dhaka;
Cambodia: Phnom Penh; Australia: Canberra; New Zealand: Wellington; Fiji: Suva;
the United States: Washington; Canada: Ottawa; Mexico: Mexico City; Cuba: Havana; Jamaica: Kingston;
Panama: Panama City; Brazil: Brasilia; Argentina: Buenos Aires; Chile: Santiago; Peru: Lima;
Colombia: Bogota; Venezuela: Caracas; Ecuador: Quito; Uruguay: Montevideo; Bolivia: Sucre
""")
CONTINENTS = _pairs("""
France: Europe; Germany: Europe; Italy: Europe; Spain: Europe; Norway: Europe; Greece: Europe;
Poland: Europe; Sweden: Europe; Portugal: Europe; Austria: Europe; Egypt: Africa; Kenya: Africa;
Nigeria: Africa; Morocco: Africa; Ghana: Africa; Ethiopia: Africa; Japan: Asia; China: Asia;
India: Asia; Thailand: Asia; Vietnam: Asia; Nepal: Asia; South Korea: Asia; Brazil: South America;
Argentina: South America; Peru: South America; Chile: South America; Canada: North America;
Mexico: North America; the United States: North America; Australia: Oceania; New Zealand: Oceania
""")
LANGUAGES = _pairs("""
France: French; Germany: German; Italy: Italian; Spain: Spanish; Portugal: Portuguese;
Japan: Japanese; China: Chinese; Russia: Russian; Brazil: Portuguese; Mexico: Spanish;
England: English; Greece: Greek; Poland: Polish; Turkey: Turkish; Egypt: Arabic; Sweden: Swedish;
Norway: Norwegian; Denmark: Danish; Finland: Finnish; Hungary: Hungarian; South Korea: Korean;
Austria: German; Argentina: Spanish; Australia: English
""")
OPPOSITES = _pairs("""
hot: cold; big: small; fast: slow; up: down; left: right; day: night; light: dark; happy: sad;
old: young; rich: poor; open: closed; full: empty; high: low; hard: soft; early: late; good: bad;
long: short; near: far; wet: dry; strong: weak; thick: thin; loud: quiet; clean: dirty;
first: last; inside: outside; true: false; black: white; begin: end; buy: sell; win: lose;
love: hate; push: pull; more: less; always: never; above: below; before: after;
sweet: sour; wide: narrow; deep: shallow; cheap: expensive; easy: difficult; brave: cowardly;
smooth: rough; sharp: blunt; friend: enemy; question: answer; war: peace; north: south; east: west
""")
PLURALS = _pairs("""
cat: cats; dog: dogs; mouse: mice; child: children; foot: feet; tooth: teeth; man: men;
woman: women; goose: geese; sheep: sheep; fish: fish; person: people; leaf: leaves; wolf: wolves;
knife: knives; box: boxes; baby: babies; city: cities; book: books; house: houses; ox: oxen;
deer: deer; bus: buses; story: stories; half: halves
""")
PASTS = _pairs("""
go: went; run: ran; eat: ate; see: saw; come: came; write: wrote; sing: sang; swim: swam; fly: flew;
give: gave; take: took; make: made; think: thought; buy: bought; bring: brought; drink: drank;
speak: spoke; sleep: slept; find: found; know: knew; walk: walked; play: played; begin: began;
break: broke; catch: caught; teach: taught
""")
YOUNG = _pairs("""
dog: puppy; cat: kitten; cow: calf; horse: foal; sheep: lamb; goat: kid; pig: piglet; bear: cub;
lion: cub; hen: chick; duck: duckling; goose: gosling; deer: fawn; frog: tadpole; kangaroo: joey;
swan: cygnet
""")
SOUNDS = _pairs("""
cat: meow; dog: woof; cow: moo; sheep: baa; duck: quack; pig: oink; horse: neigh; frog: croak;
bee: buzz; lion: roar; owl: hoot; hen: cluck; mouse: squeak; snake: hiss; wolf: howl
""")
COLOURS = _pairs("""
the sky: blue; grass: green; snow: white; blood: red; a banana: yellow; a lemon: yellow;
coal: black;
the sun: yellow; a strawberry: red; a carrot: orange; milk: white; a tomato: red; chocolate: brown;
gold: yellow; a flamingo: pink; an elephant: grey; a frog: green; the sea: blue; an orange: orange;
a plum: purple
""")
LEGS = _pairs("""
dog: four; cat: four; horse: four; cow: four; spider: eight; ant: six; bee: six; fly: six; hen: two;
duck: two; penguin: two; elephant: four; human: two; crab: ten; beetle: six; lion: four
""")
SYMBOLS = _pairs("""
hydrogen: H; helium: He; carbon: C; nitrogen: N; oxygen: O; sodium: Na; iron: Fe; gold: Au;
silver: Ag; copper: Cu; lead: Pb; tin: Sn; zinc: Zn; calcium: Ca; potassium: K; sulphur: S;
chlorine: Cl; neon: Ne; aluminium: Al; mercury: Hg; uranium: U; silicon: Si; magnesium: Mg
""")
HELLO = _pairs("""
French: Bonjour!; Spanish: ¡Hola!; German: Hallo!; Italian: Ciao!; Portuguese: Olá!;
Japanese: こんにちは; Chinese: 你好; Korean: 안녕하세요; Russian: Привет!; Greek: Γεια σας!;
Arabic: مرحبا; Hebrew: שלום; Hindi: नमस्ते; Turkish: Merhaba!; Swedish: Hej!; Finnish: Hei!;
Polish: Cześć!; Thai: สวัสดี; Ukrainian: Привіт!; English: Hello!; Dutch: Hallo!; Danish: Hej!;
Czech: Ahoj!; Hungarian: Szia!; Latin: Salve!
""")
THANKS = _pairs("""
French: Merci!; Spanish: ¡Gracias!; German: Danke!; Italian: Grazie!; Portuguese: Obrigado!;
Japanese: ありがとう; Chinese: 谢谢; Korean: 감사합니다; Russian: Спасибо!; Turkish: Teşekkürler!;
Swedish: Tack!; Polish: Dziękuję!; Finnish: Kiitos!; Dutch: Dank je!; Greek: Ευχαριστώ!;
Arabic: شكرا
""")
PLACES_OF_WORK = _pairs("""
teacher: in a school; doctor: in a hospital; baker: in a bakery; farmer: on a farm;
pilot: in a plane;
nurse: in a hospital; cook: in a kitchen; sailor: on a ship; judge: in a court;
waiter: in a restaurant;
librarian: in a library; actor: in a theatre; gardener: in a garden; scientist: in a laboratory;
miner: in a mine; astronaut: in space
""")
HOMES = _pairs("""
fish: in water; bird: in a nest; bee: in a hive; spider: in a web; fox: in a den; cow: on a farm;
lion: in the savanna; penguin: in Antarctica; camel: in the desert; monkey: in the jungle;
whale: in the ocean; dog: in a house; frog: near a pond; owl: in a tree; rabbit: in a burrow;
polar bear: in the Arctic
""")
_TRANSLATED = _pairs("""
cat: chat, gato, Katze; dog: chien, perro, Hund; house: maison, casa, Haus;
water: eau, agua, Wasser;
bread: pain, pan, Brot; book: livre, libro, Buch; sun: soleil, sol, Sonne; moon: lune, luna, Mond;
tree: arbre, árbol, Baum; friend: ami, amigo, Freund; night: nuit, noche, Nacht;
day: jour, día, Tag;
milk: lait, leche, Milch; apple: pomme, manzana, Apfel; fish: poisson, pez, Fisch;
flower: fleur, flor, Blume; red: rouge, rojo, rot; blue: bleu, azul, blau; yes: oui, sí, ja;
please: s'il vous plaît, por favor, bitte; goodbye: au revoir, adiós, auf Wiedersehen
""")
TRANSLATIONS = {
    f"{word} in {language}": translation.strip()
    for word, translations in _TRANSLATED.items()
    for language, translation in zip(
        ("French", "Spanish", "German"), translations.split(","), strict=True
    )
}
DEFINITIONS = {
    "a dog": "A dog is an animal with four legs that likes to play and to bark.",
    "a cat": "A cat is a small animal with soft fur that likes to sleep and to hunt mice.",
    "water": "Water is a clear liquid that all living things need.",
    "ice": "Ice is frozen water.",
    "steam": "Steam is water that has become a gas.",
    "the sun": "The sun is the star at the centre of our solar system.",
    "the moon": "The moon goes around the Earth and shines at night.",
    "the Earth": "The Earth is the planet on which we live.",
    "a planet": "A planet is a large round body that goes around a star.",
    "a star": "A star is a huge ball of hot gas that gives light.",
    "rain": "Rain is water that falls from the clouds.",
    "snow": "Snow is frozen water that falls from the clouds in white flakes.",
    "wind": "Wind is moving air.",
    "a tree": "A tree is a tall plant with a trunk, branches and leaves.",
    "a flower": "A flower is the part of a plant that is often colourful and smells sweet.",
    "a book": "A book is a set of pages with text to read.",
    "a computer": "A computer is a machine that follows programs.",
    "the internet": "The internet is a network that connects computers all over the world.",
    "Python": "Python is a programming language that is easy to read.",
    "JSON": "JSON is a text format for data, with objects, lists, strings and numbers.",
    "an API": "An API is a way for programs to talk to each other.",
    "a GPU": "A GPU is a processor that does many calculations at the same time.",
    "a CPU": "A CPU is the main processor of a computer.",
    "music": "Music is sound that is arranged to be beautiful.",
    "bread": "Bread is a food baked from flour and water.",
    "cheese": "Cheese is a food made from milk.",
    "a volcano": "A volcano is a mountain from which hot lava can come.",
    "a river": "A river is water that flows through the land to the sea.",
    "a desert": "A desert is a very dry place where little rain falls.",
    "an island": "An island is land with water all around it.",
    "a mountain": "A mountain is very high land.",
    "gravity": "Gravity is the force that pulls things towards the ground.",
    "electricity": "Electricity is a form of energy that powers lamps and machines.",
    "a triangle": "A triangle is a shape with three sides.",
    "a square": "A square is a shape with four equal sides.",
    "a circle": "A circle is a perfectly round shape.",
    "a penguin": "A penguin is a bird that cannot fly but swims very well.",
    "a whale": "A whale is a very large animal that lives in the ocean.",
    "a bicycle": "A bicycle is a vehicle with two wheels and pedals.",
    "democracy": "Democracy is a way of ruling in which the people vote.",
    "photosynthesis": "Photosynthesis is how plants make food from light, water and air.",
    "machine learning": "Machine learning is when a program learns from examples.",
    "a neural network": "A neural network is a program of many simple units that learns from data.",
    "love": "Love is a deep feeling of care for somebody.",
    "a friend": "A friend is somebody whom you like and trust.",
}
